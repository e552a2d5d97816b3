package registry

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	registryapi "ronbox/httpapi/wire/registry"
)

// provenLog is a node that serves checkpoints of a log tree with proofs.
type provenLog struct {
	checkedNode
	t      *testing.T
	key    *checkpoint.Key
	now    time.Time
	hashes []tlog.Hash
	size   int64
	latest checkpoint.Signed
	notes  []string // archived, the newest first
}

func (l *provenLog) ReadHashes(at []int64) (out []tlog.Hash, err error) {
	for _, i := range at {
		out = append(out, l.hashes[i])
	}
	return out, nil
}

// grow adds entries and signs the latest checkpoint.
func (l *provenLog) grow(entries ...string) {
	l.t.Helper()
	for _, e := range entries {
		more, err := tlog.StoredHashes(l.size, []byte(e), l)
		if err != nil {
			l.t.Fatal(err)
		}
		l.hashes = append(l.hashes, more...)
		l.size++
	}
	root, err := tlog.TreeHash(l.size, l)
	if err != nil {
		l.t.Fatal(err)
	}
	l.latest, err = l.key.Sign(checkpoint.Tree{Origin: l.key.Name, Size: uint64(l.size), Root: root}, l.now)
	if err != nil {
		l.t.Fatal(err)
	}
}

// cosigned archives the latest checkpoint with a line of w.
func (l *provenLog) cosigned(w testWitness) {
	l.latest = w.cosign(l.latest)
	l.notes = append([]string{string(l.latest.Note)}, l.notes...)
}

func (l *provenLog) Checkpoint(context.Context) ([]byte, error) { return l.latest.Note, nil }

func (l *provenLog) Checkpoints(context.Context, uint64) (registryapi.CheckpointList, error) {
	return registryapi.CheckpointList{Notes: l.notes}, nil
}

func (l *provenLog) ConsistencyProof(_ context.Context, from, to uint64) (registryapi.ConsistencyProof, error) {
	proof, err := tlog.ProveTree(int64(to), int64(from), l)
	return registryapi.ConsistencyProof{From: from, To: to, Hashes: proof}, err
}

// With a policy the newest cosigned checkpoint is audited. A version that the witnesses have not
// seen yet is not a fault; a fork from the log that they have seen is one.
func TestAuditUnderPolicy(t *testing.T) {
	secret, vkey, err := note.GenerateKey(rand.Reader, "registry.example/main")
	if err != nil {
		t.Fatal(err)
	}
	key, err := checkpoint.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	w, dir := newTestWitness("a"), t.TempDir()
	policy, state := filepath.Join(dir, "policy"), filepath.Join(dir, "state")
	if err := os.WriteFile(policy, []byte(w.line()+"quorum a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := &provenLog{t: t, key: key, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	audit := func(doc string, f judgeFlags, code int, size uint64) {
		t.Helper()
		a := app{&cli.App{Stdout: io.Discard, Stderr: io.Discard, Now: func() time.Time { return node.now }}}
		err := a.auditNode(t.Context(), node, state, vkey, f)
		got := a.Exit
		if failed, ok := errors.AsType[*cli.Failure](err); ok {
			got = failed.Code
		} else if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		var kept auditState
		if err := cli.ReadAudit(state, &kept, func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		tree, _ := checkpoint.TreeOf([]byte(kept.Note))
		if got != code || tree.Size != size {
			t.Errorf("%s: exit %d and %d versions kept, want %d and %d", doc, got, tree.Size, code, size)
		}
	}
	judged := judgeFlags{policy: policy}
	node.grow("1", "2")
	audit("no cosignature yet", judged, registryapi.ExitQuorum, 0)
	node.cosigned(w)
	audit("cosigned", judged, 0, 2)
	node.grow("3", "4", "5")
	audit("a moment after a commit", judged, 0, 2)
	audit("without a policy", judgeFlags{}, 0, 5)
	audit("what was kept is not covered", judged, registryapi.ExitQuorum, 5)
	node.cosigned(w)
	audit("covered again", judged, 0, 5)
	node.now = node.now.Add(time.Hour)
	audit("too old", judgeFlags{policy: policy, maxAge: time.Minute}, exitTooOld, 5)
	seen := bytes.Clone(node.latest.Note)
	node.hashes, node.size = nil, 0
	node.grow("1", "2", "3", "4", "other", "6")
	node.notes = []string{string(seen)}
	audit("another log than the witnesses have seen", judged, cli.ExitBad, 5)
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	audit("the same to an auditor that begins", judged, cli.ExitBad, 0)
}
