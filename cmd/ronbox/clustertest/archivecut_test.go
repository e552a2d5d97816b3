package clustertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/host/hosttest"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
)

// archiveCuts is the number of images of a node with an archive, unless -cuts is more.
const archiveCuts = 6

// archiving is a node alone with an archive on another disk, whose power is cut.
type archiving struct {
	*node
	usb string // the directory of the archive
}

// newArchiving starts a node with an archive, and stops it once it has a base.
func newArchiving(t testing.TB, fsync string) *archiving {
	t.Helper()
	n := newNode(t, "a", "RONBOX_ARCHIVE__PLAINTEXT=true", "RONBOX_ARCHIVE__EVERY=1s", "RONBOX_ARCHIVE__FSYNC="+fsync)
	a := &archiving{n, filepath.Join(filepath.Dir(n.dir), "usb")}
	n.env = append(n.env, "RONBOX_ARCHIVE__TARGET=file://"+a.usb)
	must(t, os.Mkdir(a.usb, 0o700))
	n.open(t)
	a.sent(t)
	if code := n.stop(t); code != 0 {
		t.Fatalf("exit %d", code)
	}
	return a
}

// sent waits until the archive has every command of the node, and returns its line.
func (a *archiving) sent(t testing.TB) (line string) {
	t.Helper()
	c := nodeapi.NewClient(a.socket(t))
	until(t, "the archive", []*node{a.node}, func() bool {
		s, err := c.Archive(t.Context())
		line = s.Line
		return err == nil && s.State == "ok" && s.UnsentBytes == 0
	})
	return line
}

// lives runs the node under strace, kills it while it pays, and returns what the trace shows.
func (a *archiving) lives(t testing.TB) *disk {
	t.Helper()
	parent := filepath.Dir(a.dir)
	base, trace := filepath.Join(parent, "base"), filepath.Join(parent, "trace")
	must(t, copyTree(a.dir, base))
	a.with = []string{
		hosttest.Tool(t, "strace", "strace"), "-D", "-f", "-qq", "--seccomp-bpf", "-y", "-xx", "-s", "16777216",
		"-e", "trace=" + strings.Replace(tracedCalls, "copy_file_range,splice,", "", 1), // of the archive's disk
		"-e", "signal=none", "-o", trace, "--",
	}
	a.launch(t)
	a.with = nil
	socket := a.socket(t)
	until(t, "the node is ready", []*node{a.node}, func() bool { return ready(t.Context(), socket) })
	w := walletapi.NewClient(socket)
	var wg sync.WaitGroup
	for i := range accounts {
		wg.Go(func() {
			for n := range 60 {
				_, err := w.Transfer(t.Context(), fmt.Sprintf("%d-%d", i, n), walletapi.Transfer{
					From: till(i), To: till((i + 1) % accounts), Asset: "ron", AmountMinor: "1",
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	a.kill()
	k, err := newDisk(a.dir, base)
	must(t, err)
	must(t, k.read(trace))
	return k
}

// boots starts the node on an image of its files with a copy of the archive as it was at the cut, and
// stops it once it has sent everything.
func (a *archiving) boots(t testing.TB, k *disk, keep keeps, usb string) (line string) {
	t.Helper()
	must(t, copyTree(usb, a.usb))
	must(t, k.image(k.last, keep, a.dir))
	a.launch(t)
	socket := a.socket(t)
	until(t, "the node is ready", []*node{a.node}, func() bool { return ready(t.Context(), socket) })
	line = a.sent(t)
	if code := a.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	a.must(t, nil, "archive", "verify", "--target", "file://"+a.usb, "--json")
	return line
}

// moment is a state that was restored.
type moment struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"state_hash"`
}

// restores restores a moment of a line of an archive.
func (a *archiving) restores(t testing.TB, usb, line string, args ...string) (m moment) {
	t.Helper()
	to := filepath.Join(filepath.Dir(a.dir), "restored")
	must(t, os.RemoveAll(to))
	a.must(t, &m, append([]string{"archive", "restore", "--target", "file://" + usb, "--line", line, "--to", to,
		"--json"}, args...)...)
	return m
}

// After a power cut at any moment the line goes on, or ends as gap, and leads to no state that the
// node did not have. With a sync before each commit it goes on. The archive is on a disk that loses
// nothing.
func TestPowerCutOfArchive(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("what counts is another process")
	}
	seed := hosttest.Seed(t, "CLUSTER_SEED")
	cuts := max(archiveCuts, *cutsFlag)
	if testing.Short() {
		cuts = 2
	}
	for _, fsync := range []string{"interval", "always"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			d := rand.New(rand.NewPCG(seed, uint64(len(fsync))))
			a := newArchiving(t, fsync)
			k := a.lives(t)
			usb, whole := a.usb+".cut", a.usb+".whole"
			must(t, copyTree(a.usb, usb))
			first := a.boots(t, k, all, usb) // a kill alone
			must(t, os.Rename(a.usb, whole))
			gaps := 0
			for i := range cuts {
				line := a.boots(t, k, fair(d), usb)
				if line != first {
					gaps++
				}
				if ended := strings.Contains(a.proc.log.String(), `"reason":"gap"`); (line != first) != ended {
					t.Errorf("cut %d: the line was %s, and is %s", i, first, line)
				}
				got := a.restores(t, a.usb, first, "--latest")
				want := a.restores(t, whole, first, "--seq", fmt.Sprint(got.Seq))
				if line != first && got != want {
					t.Errorf("cut %d: %+v, want %+v", i, got, want)
				}
			}
			if fsync == "always" && gaps > 0 {
				t.Errorf("%d gaps", gaps)
			}
			t.Logf("%d cuts, %d gaps", cuts, gaps)
		})
	}
}
