"""Keys and sealed text: the only room with cryptography.

Content is sealed with one data key per agent (AES-256-GCM, the row's identity as associated data). Data keys are sealed
by HPKE (RFC 9180) to public keys: the master's, and those derived from the agent's own tokens.
"""

from app.silo.intake import open_intake, seal_intake
from app.silo.keyfile import KeyFileError
from app.silo.keyring import KeyRing
from app.silo.keys import (
    AgentKeys,
    KeyPair,
    MasterKey,
    MasterPublicKey,
    WrappedKey,
    make_agent_keys,
    open_agent_keys,
    rewrap_key,
)
from app.silo.readers import TokenKey, ViewKey, hash_token, new_token, parse_token, seal_view
from app.silo.sealed import SealBroken, Sealed
