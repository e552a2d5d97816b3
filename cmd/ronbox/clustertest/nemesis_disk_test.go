package clustertest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
)

// exitStorage is the exit code of a node whose disk has failed.
const exitStorage = 74

// pageSize is the size of a page of the database, which begins with two meta pages.
const pageSize = 4096

// logEnd is the number of bytes at the end of the log in which a bit is flipped. A boot reads the
// last entries only.
const logEnd = 4 << 10

// tracer is a process of strace that is attached to a node and disturbs its system calls.
type tracer struct {
	cmd   *exec.Cmd
	trace string // a file
}

// trace disturbs system calls of a node on files, as strace's inject says.
func (n *node) trace(t testing.TB, calls, fault string, files ...string) *tracer {
	t.Helper()
	s := &tracer{trace: filepath.Join(filepath.Dir(n.dir), "trace")}
	must(t, os.RemoveAll(s.trace))
	args := []string{"-f", "-qq", "-p", strconv.Itoa(n.proc.cmd.Process.Pid), "-o", s.trace, "-e", "signal=none",
		"-e", "trace=" + calls, "-e", "inject=" + calls + ":" + fault}
	for _, f := range files {
		args = append(args, "-P", f)
	}
	s.cmd = exec.Command(hosttest.Tool(t, "strace", "strace"), args...)
	s.cmd.Stderr = n.proc.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, s.cmd.Start())
	t.Cleanup(s.stop)
	return s
}

// struck reports whether a system call was disturbed.
func (s *tracer) struck() bool {
	raw, err := os.ReadFile(s.trace)
	return err == nil && (bytes.Contains(raw, []byte("INJECTED")) || bytes.Contains(raw, []byte("DELAYED")))
}

// stop kills strace, which detaches it. An interrupted strace waits for a thread that waits for it.
func (s *tracer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// database and logFiles return the files of a node in which it keeps what it acknowledges.
func (n *node) database() string { return filepath.Join(n.dir, "ronbox.db") }

func (n *node) logFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "raft", "*.wal"))
	must(t, err)
	return files
}

// lives counts the lives of the process of a node that have ended and are in the kept log.
func (n *node) lives() int { return strings.Count(n.proc.log.String(), "deposed") }

// wellOrEnds waits until the cluster is well, or the node has ended with the exit code. It starts
// the node then, anew if its files are damaged.
func (c *cluster) wellOrEnds(t testing.TB, i, want int) {
	t.Helper()
	n := c.nodes[i]
	until(t, n.name+" is well or ends", nil, func() bool { return !n.running() || c.unwell(t) == "" })
	if n.running() {
		return
	}
	switch code := n.ended(t); {
	case code != want && code != exitCorrupt:
		t.Fatalf("%s ended with %d:\n%s", n.name, code, n.proc.log)
	case code == exitCorrupt:
		c.rejoin(t, i)
	default:
		c.start(t, i)
	}
}

// failSync lets a sync of the log or of the database of any node fail. What the failed sync has lost
// is not known, so the life of the node must end.
func failSync(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := d.IntN(len(c.nodes))
	n := c.nodes[i]
	files := []string{n.database()}
	if d.IntN(2) == 0 {
		files = n.logFiles(t)
	}
	life := n.lives()
	s := n.trace(t, "fsync,fdatasync", "error=EIO:when="+strconv.Itoa(1+d.IntN(10)), files...)
	until(t, "a sync fails", nil, s.struck)
	until(t, "the life ends", nil, func() bool { return !n.running() || n.lives() != life })
	s.stop()
	c.wellOrEnds(t, i, exitStorage)
}

// stallSync lets all syncs of the leader wait until another node leads.
func stallSync(t testing.TB, c *cluster, _ *round, _ *rand.Rand) {
	i := c.leader(t)
	n := c.nodes[i]
	s := n.trace(t, "fsync,fdatasync", "delay_enter=60s", append(n.logFiles(t), n.database())...)
	until(t, "another node leads", nil, func() bool { return c.leader(t) != i })
	s.stop()
}

// flipBit changes a bit at the end of the log, in its vote, or in a meta page of the database of a
// follower that is stopped. The other pages of the database have no checksums: a boot does not find
// a bit in them.
func flipBit(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.follower(t, d)
	n := c.nodes[i]
	n.kill()
	vote := filepath.Join(n.dir, "raft", "wal-meta.db")
	files := append(n.logFiles(t), n.database(), vote)
	file := files[d.IntN(len(files))]
	raw, err := os.ReadFile(file)
	must(t, err)
	used := len(bytes.TrimRight(raw, "\x00"))
	first := max(0, used-logEnd)
	switch file {
	case n.database():
		first, used = 0, 2*pageSize
	case vote:
		first = 0
	}
	at := first + d.IntN(used-first)
	for raw[at] == 0 { // may be unused
		at = first + d.IntN(used-first)
	}
	raw[at] ^= 1 << d.IntN(8)
	must(t, os.WriteFile(file, raw, 0o600))
	t.Logf("byte %d of %s, %d used", at, filepath.Base(file), used)
	c.start(t, i)
	c.wellOrEnds(t, i, exitCorrupt)
}

// killInstall kills a node several times while it gets the file of the leader.
func killInstall(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.follower(t, d)
	c.nodes[i].kill()
	c.rejoin(t, i)
	for range 2 + d.IntN(4) {
		hold(50*time.Millisecond + time.Duration(d.Int64N(int64(750*time.Millisecond))))
		c.nodes[i].kill()
		c.start(t, i)
	}
}

// fillDisk lets all writes of any node to its log, or to all its files, fail for want of room.
func fillDisk(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := d.IntN(len(c.nodes))
	n := c.nodes[i]
	files := n.logFiles(t)
	if d.IntN(2) == 0 {
		files = append(files, n.database())
	}
	s := n.trace(t, "pwrite64,fallocate,ftruncate", "error=ENOSPC", files...)
	until(t, "a write fails", nil, s.struck)
	hold(cutTime)
	s.stop()
	c.wellOrEnds(t, i, exitStorage)
}
