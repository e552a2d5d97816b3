package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ronbox/cmd/ronbox/cli"
	"ronbox/store"
)

// Of an archive that two nodes share, verify proves both, and restore wants one to be named.
func TestArchiveOfTwoNodes(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	one := newBox(t)
	a := one.archives(t)
	two := newBox(t)
	two.env = append(two.env, one.env[len(one.env)-3:]...) // the same archive
	hashes, seqs, ids := map[string]string{}, map[string]uint64{}, []string{}
	for i, b := range []*box{one, two} {
		p := b.start(t)
		for n := range i + 1 {
			must(t, nil, b.args("wallet", "issue", fmt.Sprint("shop", n), "1000", "-q")...)
		}
		seq, hash := b.stateSent(t)
		if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
			t.Errorf("exit %d\n%s", code, p.stderr)
		}
		r, err := store.OpenReader(filepath.Join(b.dir, "ronbox.db"))
		if err != nil {
			t.Fatal(err)
		}
		id := r.Info().NodeID
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		hashes[id], seqs[id], ids = hash, seq, append(ids, id)
	}
	file := filepath.Join(t.TempDir(), "drill.prom")
	var found struct {
		OK    bool `json:"ok"`
		Nodes []struct {
			Node  string `json:"node"`
			Drill struct {
				RPO float64 `json:"rpo_seconds"`
			} `json:"drill"`
		} `json:"nodes"`
	}
	must(t, &found, append([]string{"archive", "verify", "--restore", "--textfile", file}, a.flags...)...)
	text, err := os.ReadFile(file)
	if err != nil || !found.OK || len(found.Nodes) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, n := range found.Nodes {
		if hashes[n.Node] == "" || n.Drill.RPO <= 0 || strings.Count(string(text), n.Node) != 3 {
			t.Errorf("%+v\n%s", n, text)
		}
	}
	refused := func(code int, says string, args ...string) {
		t.Helper()
		r := ronbox(t, append(append([]string{"archive"}, args...), a.flags...)...)
		if r.code != code || !strings.Contains(r.stdout+r.stderr, says) {
			t.Errorf("%v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	slices.Sort(ids)
	to := t.TempDir()
	refused(21, strings.Join(ids, ", "), "restore", "--latest", "--to", to)
	refused(21, strings.Join(ids, `","`), "restore", "--seq", "1", "--to", to)
	refused(20, "no line has a complete base", "verify", "--line", "none")
	refused(20, "no line has a complete base", "verify", "--node", strings.Repeat("0", 26))
	for _, id := range ids {
		if got := a.stateAt(t, seqs[id], "--node", id); got != hashes[id] {
			t.Errorf("node %s: state %s, and it has %s", id, got, hashes[id])
		}
	}
}
