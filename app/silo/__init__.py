"""Keys, sealed text and signed notes: the only room with cryptography.

Content is sealed with one data key per agent (AES-256-GCM, the row's identity as associated data); what a memory says,
with a key of its own, which the data key seals. Data keys are sealed by HPKE (RFC 9180) to public keys: the master's,
and those derived from the agent's own tokens. What was decided is signed (C2SP notes, Ed25519) and stands in a log
whose Merkle tree (RFC 6962) has a copy outside the database.
"""

from app.silo.checkpoints import (
    Checkpoint,
    InclusionProof,
    check_proof,
    format_proof,
    open_checkpoint,
    parse_checkpoint,
    parse_proof,
)
from app.silo.intake import open_intake, seal_intake
from app.silo.keyfile import KeyFileError
from app.silo.keyring import KeyRing
from app.silo.keys import AgentKeys, KeyPair, MasterKey, MasterPublicKey, WrappedKey, make_agent_keys, open_agent_keys
from app.silo.logcopy import LeafRecord, LogCopy, LogCopyBroken, LogCopyUnwritable, LogForked
from app.silo.merkle import MerkleTree, ProofBroken, check_consistency, check_inclusion, hash_leaf, root_of
from app.silo.notes import (
    NoteBroken,
    NoteVerifier,
    OpenedNote,
    SigningKey,
    add_signature,
    claimed_signers,
    installation_name,
    open_note,
    sign_note,
    token_name,
    web_name,
)
from app.silo.noticekeys import WebNoticeKey, new_webhook_secret, open_target, seal_target, sign_webhook
from app.silo.readers import TokenKey, ViewKey, hash_token, new_token, parse_token, seal_view
from app.silo.sealed import SealBroken, Sealed, SealedMemory
from app.silo.secondfactor import SecondFactorKey, matching_step, new_totp_secret, totp_uri
from app.silo.webkey import PinnedFileError, PinnedInstallation, WebKey, WebKeyError
