//go:build formats

package main

import (
	"bytes"

	"golang.org/x/mod/sumdb/tlog"

	reader "transparency/proof"
)

func init() {
	checkProofs = func(proofs []proof) {
		for number, each := range proofs {
			var found reader.TLogProof
			must(found.Unmarshal(each.File))
			var hashes []tlog.Hash
			for _, hash := range found.Hashes {
				hashes = append(hashes, hash)
			}
			differs(found.Index != each.Index, "proof %d is of leaf %d", number, found.Index)
			differs(!alike(hashes, each.Hashes), "proof %d has other hashes", number)
			differs(!bytes.Equal(found.Checkpoint, each.Checkpoint), "proof %d has another checkpoint", number)
			differs(!bytes.Equal(found.ExtraData, each.Extra), "proof %d has another extra", number)
			differs(!bytes.Equal(found.Marshal(), each.File), "proof %d is written otherwise", number)
		}
	}
}
