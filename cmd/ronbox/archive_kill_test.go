package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// archiveLife is the longest life of a node that archives: it packs and sends some times in it.
const archiveLife = 400 * time.Millisecond

// TestKill9Archive kills a node with an archive at random points of payments and of boots. Its line
// goes on, without a gap and without another base, and leads to the state that the node has.
func TestKill9Archive(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	for done := 0; done < *kills; done += killsPerBox {
		cycles := min(killsPerBox, *kills-done)
		t.Run(fmt.Sprintf("%d-%d", done+1, done+cycles), func(t *testing.T) {
			t.Parallel()
			killArchive(t, cycles)
		})
	}
}

// away is the place of an archive, and the flags that name it.
type away struct {
	dir, identity string
	flags         []string
}

// archives gives a node that was not started yet an archive in a directory.
func (b *box) archives(t testing.TB) (a away) {
	t.Helper()
	parent := filepath.Dir(b.dir)
	a = away{dir: filepath.Join(parent, "usb"), identity: filepath.Join(parent, "archive.key")}
	a.flags = []string{"--target", "file://" + a.dir, "--identity", a.identity, "--json"}
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var made struct {
		Recipient string `json:"recipient"`
	}
	must(t, &made, "archive", "keygen", a.identity, "--json")
	b.env = append(b.env, "RONBOX_ARCHIVE__TARGET=file://"+a.dir, "RONBOX_ARCHIVE__RECIPIENTS="+made.Recipient,
		"RONBOX_ARCHIVE__EVERY=1s")
	return a
}

// killArchive kills one node the given number of times.
func killArchive(t *testing.T, cycles int) {
	t.Helper()
	b, d := newDiskBox(t), draws(t, "archive kills")
	a := b.archives(t)
	b.env = append(b.env, "RONBOX_LEDGER__FLUSH_EVERY=5ms")
	ps := b.killPayers(t, cycles, func(p *process, i int) { killDuring(b, t, d, p, i) })
	all := 0
	for _, payer := range ps {
		all += payer.all
	}
	p := b.start(t)
	seq, hash := b.stateSent(t)
	if code := p.signal(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	var list struct {
		Lines []struct {
			Line  string `json:"line"`
			Bases int    `json:"bases"`
		} `json:"lines"`
	}
	must(t, &list, "archive", "list", "--target", "file://"+a.dir, "--json")
	if len(list.Lines) != 1 || list.Lines[0].Bases != 1 {
		t.Errorf("%+v", list)
	}
	var found struct {
		OK    bool `json:"ok"`
		Nodes []struct {
			Objects int `json:"objects"`
			Entries int `json:"entries"`
		} `json:"nodes"`
	}
	must(t, &found, append([]string{"archive", "verify"}, a.flags...)...)
	if !found.OK || len(found.Nodes) != 1 || found.Nodes[0].Entries == 0 {
		t.Errorf("%+v", found)
	}
	if got := a.stateAt(t, seq); got != hash {
		t.Errorf("command %d: state %s, and the node has %s", seq, got, hash)
	}
	t.Logf("%d kills, %d payments, %+v", cycles, all, found.Nodes)
}

// killDuring kills the node during its work, and sometimes once more during boot.
func killDuring(b *box, t *testing.T, d *rand.Rand, p *process, i int) {
	t.Helper()
	kill := func(p *process, most time.Duration) {
		time.AfterFunc(drawTime(d, most), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
		<-p.done
	}
	kill(p, archiveLife)
	if i%tellEvery == 0 {
		kill(b.launch(t), 100*time.Millisecond)
	}
	if strings.Contains(p.stderr.String(), "archive_line_ends") {
		t.Errorf("the line has ended\n%s", p.stderr)
	}
}

// stateSent takes a snapshot, and waits until the archive has its last command.
func (b *box) stateSent(t testing.TB) (seq uint64, hash string) {
	t.Helper()
	c := b.client(t)
	var s nodeapi.Snapshot
	until(t, "the snapshot of a base, which comes before another one, is taken", func() bool {
		var err error
		s, err = c.Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir()}, nil)
		p, refused := errors.AsType[*wire.Problem](err)
		if err != nil && (!refused || p.Reason != "busy") {
			t.Fatal(err)
		}
		return err == nil
	})
	m, err := store.ReadManifest(s.File)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the archive has the snapshot's last command", func() bool {
		a, err := c.Archive(t.Context())
		return err == nil && a.State == "ok" && a.SentSeq >= s.Seq
	})
	return s.Seq, m.StateHash.String()
}

// stateAt restores a command and returns the hash of its state.
func (a away) stateAt(t testing.TB, seq uint64, more ...string) string {
	t.Helper()
	var out struct {
		Hash string `json:"state_hash"`
	}
	args := append([]string{"archive", "restore", "--seq", fmt.Sprint(seq), "--to", t.TempDir()}, more...)
	must(t, &out, append(args, a.flags...)...)
	return out.Hash
}
