// Checks what Whetstone wrote with golang.org/x/mod/sumdb/note and .../tlog. Input: one JSON object, see __main__.py.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type opened struct {
	Note  []byte
	Keys  []string
	Text  string
	Names []string // who has signed it; none: it must be refused
}

type signed struct {
	Secrets []string
	Text    string
	Note    []byte
}

type included struct {
	Index, Size int64
	Proof       []tlog.Hash
	Wrong       bool // it must be refused
}

type grown struct {
	Old, New int64
	Proof    []tlog.Hash
	Wrong    bool
}

type checkpoint struct {
	Size int64
	Text string
}

type proof struct {
	File, Extra, Checkpoint []byte
	Index                   uint64
	Hashes                  []tlog.Hash
}

var input struct {
	Opened      []opened
	Signed      []signed
	Leaves      [][]byte
	Roots       []tlog.Hash
	Included    []included
	Grown       []grown
	Checkpoints []checkpoint
	Proofs      []proof
}

var failures int

func differs(is bool, words string, values ...any) {
	if is {
		failures++
		fmt.Printf("DIFFERS: "+words+"\n", values...)
	}
}

func must(err error) {
	if err != nil {
		fmt.Println("DIFFERS: unexpected error:", err)
		os.Exit(1)
	}
}

// checkProofs stands in proofs.go where a reader of tlog-proof is at hand.
var checkProofs func([]proof)

func main() {
	must(json.NewDecoder(os.Stdin).Decode(&input))
	checkOpened()
	checkSigned()
	checkTree()
	fmt.Printf("notes opened or refused: %d; notes signed alike: %d\n", len(input.Opened), len(input.Signed))
	fmt.Printf("roots alike: %d; checkpoints alike: %d\n", len(input.Roots)-1, len(input.Checkpoints))
	fmt.Printf("proofs alike, and accepted or refused: inclusion %d, consistency %d\n", len(input.Included), len(input.Grown))
	if checkProofs != nil {
		checkProofs(input.Proofs)
		fmt.Printf("tlog-proof files read and written alike: %d\n", len(input.Proofs))
	}
	if failures > 0 {
		fmt.Printf("%d differences\n", failures)
		os.Exit(1)
	}
}

func checkOpened() {
	for number, each := range input.Opened {
		var verifiers []note.Verifier
		for _, key := range each.Keys {
			verifier, err := note.NewVerifier(key)
			must(err)
			verifiers = append(verifiers, verifier)
		}
		found, err := note.Open(each.Note, note.VerifierList(verifiers...))
		if len(each.Names) == 0 {
			differs(err == nil, "note %d was to be refused", number)
			continue
		}
		if err != nil {
			differs(true, "note %d: %v", number, err)
			continue
		}
		var names []string
		for _, signature := range found.Sigs {
			names = append(names, signature.Name)
		}
		differs(found.Text != each.Text, "note %d has another text", number)
		differs(!reflect.DeepEqual(names, each.Names), "note %d is signed by %v", number, names)
	}
}

func checkSigned() {
	for number, each := range input.Signed {
		var signers []note.Signer
		for _, secret := range each.Secrets {
			signer, err := note.NewSigner(secret)
			must(err)
			signers = append(signers, signer)
		}
		written, err := note.Sign(&note.Note{Text: each.Text}, signers...)
		must(err)
		differs(!bytes.Equal(written, each.Note), "signed note %d: %q, not %q", number, written, each.Note)
	}
}

func checkTree() {
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for place, index := range indexes {
			found[place] = stored[index]
		}
		return found, nil
	})
	for number, leaf := range input.Leaves {
		hashes, err := tlog.StoredHashes(int64(number), leaf, reader)
		must(err)
		stored = append(stored, hashes...)
	}
	for size, root := range input.Roots {
		if size == 0 {
			continue // the empty root is newer than this package
		}
		found, err := tlog.TreeHash(int64(size), reader)
		must(err)
		differs(found != root, "root over %d: %v, not %v", size, found, root)
	}
	for _, each := range input.Included {
		hash := tlog.RecordHash(input.Leaves[each.Index])
		err := tlog.CheckRecord(each.Proof, each.Size, input.Roots[each.Size], each.Index, hash)
		differs((err != nil) != each.Wrong, "leaf %d in %d, wrong %v: %v", each.Index, each.Size, each.Wrong, err)
		made, err := tlog.ProveRecord(each.Size, each.Index, reader)
		must(err)
		differs(alike(made, each.Proof) == each.Wrong, "proof of leaf %d in %d", each.Index, each.Size)
	}
	for _, each := range input.Grown {
		err := tlog.CheckTree(each.Proof, each.New, input.Roots[each.New], each.Old, input.Roots[each.Old])
		differs((err != nil) != each.Wrong, "%d begins with %d, wrong %v: %v", each.New, each.Old, each.Wrong, err)
		made, err := tlog.ProveTree(each.New, each.Old, reader)
		must(err)
		differs(alike(made, each.Proof) == each.Wrong, "proof that %d begins with %d", each.New, each.Old)
	}
	for _, each := range input.Checkpoints {
		tree := tlog.Tree{N: each.Size, Hash: input.Roots[each.Size]}
		written := string(tlog.FormatTree(tree))
		differs(written != each.Text, "checkpoint %d: %q, not %q", each.Size, written, each.Text)
		found, err := tlog.ParseTree([]byte(each.Text))
		differs(err != nil || found != tree, "checkpoint %d is read as %v: %v", each.Size, found, err)
	}
}

func alike(one, other []tlog.Hash) bool {
	return len(one) == len(other) && (len(one) == 0 || reflect.DeepEqual(one, other))
}
