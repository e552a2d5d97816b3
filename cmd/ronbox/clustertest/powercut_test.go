package clustertest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/host/hosttest"
)

var cutsFlag = flag.Int("cuts", 0, "cut the power of a cluster of three so many times")

const (
	cutSpread  = 500 * time.Millisecond // time within which all nodes lose their power
	joinSpread = 2 * time.Second        // longest time from the start of a node that joins to a cut
)

// power cuts the power of nodes. strace records each life of each node from known files. A cut
// kills the processes and replaces their files by an image: all that was synced before, and any part
// of what was not. The nodes really end at different moments: in a trace that goes on after the cut
// of another node, a node would know what that node has never said.
type power struct {
	c      *cluster
	trials int // images that only one node has booted
}

func (p *power) base(i int) string  { return filepath.Join(filepath.Dir(p.c.nodes[i].dir), "base") }
func (p *power) image(i int) string { return filepath.Join(filepath.Dir(p.c.nodes[i].dir), "image") }
func (p *power) trace(i int) string { return filepath.Join(filepath.Dir(p.c.nodes[i].dir), "trace") }

// joins reports whether a node had to fetch its file in its last life.
func (p *power) joins(i int) bool {
	_, err := os.Stat(filepath.Join(p.base(i), "ronbox.db"))
	return err != nil
}

// newPower stops all nodes of a cluster and starts them under strace.
func newPower(t testing.TB, c *cluster) *power {
	t.Helper()
	p := &power{c: c}
	for i, n := range c.nodes {
		if code := n.stop(t); code != 0 {
			t.Fatalf("%s ended with %d", n.name, code)
		}
		must(t, copyTree(n.dir, p.base(i)))
	}
	for i := range c.nodes {
		p.start(t, i)
	}
	return p
}

// start starts a node under strace.
func (p *power) start(t testing.TB, i int) {
	t.Helper()
	n := p.c.nodes[i]
	n.with = []string{
		hosttest.Tool(t, "strace", "strace"), "-D", "-f", "-qq", "--seccomp-bpf", "-y", "-xx", "-s", "16777216",
		"-e", "trace=" + tracedCalls, "-e", "signal=none", "-o", p.trace(i), "--",
	}
	p.c.start(t, i)
	n.with = nil
}

// disk returns what the trace shows of the files of a node that has ended.
func (p *power) disk(t testing.TB, i int) *disk {
	t.Helper()
	k, err := newDisk(p.c.nodes[i].dir, p.base(i))
	must(t, err)
	must(t, k.read(p.trace(i)))
	return k
}

// cut is the nemesis. In one of three cuts the leader was deposed a moment before, and in another one
// a node begins anew.
func (p *power) cut(t testing.TB, _ *cluster, _ *round, d *rand.Rand) {
	what := "all are well"
	switch d.IntN(3) {
	case 0:
		what = "the leader was deposed"
		p.depose(t)
	case 1:
		what = "a node joins"
		p.rejoin(t, d)
	}
	p.kill(d)
	var lines []int
	for i := range p.c.nodes {
		k := p.disk(t, i)
		lines = append(lines, k.last)
		if !p.joins(i) {
			p.boot(t, i, k, d)
		}
		p.restore(t, i, k, fair(d))
	}
	for i := range p.c.nodes {
		p.start(t, i)
	}
	t.Logf("    cut: %s; lines of the traces: %v", what, lines)
}

// cutLying is a cut with disks that have kept nothing since the start of their nodes.
func (p *power) cutLying(t testing.TB, _ *cluster, _ *round, d *rand.Rand) {
	p.kill(d)
	for i := range p.c.nodes {
		p.restore(t, i, p.disk(t, i), lying)
		p.start(t, i)
	}
}

// restore replaces the files of a node by an image of their last moment.
func (p *power) restore(t testing.TB, i int, k *disk, keep keeps) {
	t.Helper()
	p.draw(t, i, k, k.last, keep)
	must(t, os.RemoveAll(p.base(i)))
	must(t, os.Rename(p.image(i), p.base(i)))
	must(t, copyTree(p.base(i), p.c.nodes[i].dir))
}

// depose pauses the leader until another node leads.
func (p *power) depose(t testing.TB) {
	t.Helper()
	i := p.c.leader(t)
	p.c.nodes[i].signal(syscall.SIGSTOP)
	until(t, "another node leads", nil, func() bool { return p.c.leader(t) != i })
	p.c.nodes[i].signal(syscall.SIGCONT)
}

// rejoin lets a follower begin anew. A moment later it fetches its file, or has just done so.
func (p *power) rejoin(t testing.TB, d *rand.Rand) {
	t.Helper()
	i := p.c.follower(t, d)
	n := p.c.nodes[i]
	n.kill()
	n.must(t, nil, "cluster", "rejoin", "--wipe", "--json")
	must(t, copyTree(n.dir, p.base(i)))
	p.start(t, i)
	hold(time.Duration(d.Int64N(int64(joinSpread))))
}

// kill kills all nodes at moments that are drawn independently.
func (p *power) kill(d *rand.Rand) {
	moments, order := make([]time.Duration, len(p.c.nodes)), d.Perm(len(p.c.nodes))
	for i := range moments {
		moments[i] = time.Duration(d.Int64N(int64(cutSpread)))
	}
	slices.Sort(moments)
	var now time.Duration
	for i, at := range moments {
		hold(at - now)
		now = at
		p.c.nodes[order[i]].signal(syscall.SIGKILL)
	}
	for _, n := range p.c.nodes {
		<-n.proc.done
	}
}

// draw makes an image of a node, whose ledger must be sound. A node that joins may have none yet.
func (p *power) draw(t testing.TB, i int, k *disk, at int, keep keeps) {
	t.Helper()
	must(t, k.image(at, keep, p.image(i)))
	file := filepath.Join(p.image(i), "ronbox.db")
	if _, err := os.Stat(file); err == nil || !p.joins(i) {
		p.c.nodes[i].must(t, nil, "ledger", "verify", file, "--json")
	}
}

// boot starts a node alone on an image of an earlier moment of its life. The node must accept its
// files.
func (p *power) boot(t testing.TB, i int, k *disk, d *rand.Rand) {
	t.Helper()
	n := p.c.nodes[i]
	at := d.IntN(k.last + 1)
	p.draw(t, i, k, at, fair(d))
	must(t, copyTree(p.image(i), n.dir))
	p.c.start(t, i)
	until(t, fmt.Sprintf("%s boots on the image of line %d of %d", n.name, at, k.last), []*node{n}, func() bool {
		return strings.Contains(n.proc.log.String(), "boot_ms")
	})
	n.kill()
	p.trials++
}

// A power cut of all nodes at independent moments loses nothing that was acknowledged, and makes no
// node refuse its files. Each disk keeps all synced writes and any subset of the unsynced sectors
// and names.
func TestPowerCutOfThree(t *testing.T) {
	if *cutsFlag == 0 {
		t.Skip("minutes: -cuts N cuts the power N times")
	}
	seed := hosttest.Seed(t, "CLUSTER_SEED")
	c := newCluster(t, 3)
	p := newPower(t, c)
	c.well(t)
	b := newBank(c.svc, fmt.Sprintf("p%x", seed))
	loads := c.loads(t, fmt.Sprintf("e%x", seed))
	funds := balances{openingEach, openingEach, openingEach}
	power := nemesis{"power", p.cut}
	for i := range *cutsFlag {
		funds = c.round(t, b, power, funds, i, loads, rand.New(rand.NewPCG(seed, 1+uint64(i))))
		c.sameState(t)
	}
	must(t, b.checkJournal(c.nodes[c.leader(t)].journal(t)))
	t.Logf("%d images of a cluster, %d of a node alone", *cutsFlag, p.trials)
	r := newRound(c.svc, b, funds, *cutsFlag)
	if _, err := c.play(t, r, nemesis{"lying", p.cutLying}, rand.New(rand.NewPCG(seed, 0))); err == nil {
		t.Error("the disks have lost acknowledged payments, and no check has found that")
	}
	p.end(t)
}

// end stops all nodes. The traces have shown all that they wrote, and their ledgers are sound.
func (p *power) end(t testing.TB) {
	t.Helper()
	for i, n := range p.c.nodes {
		if code := n.stop(t); code != 0 {
			t.Errorf("%s ended with %d", n.name, code)
		}
		k := p.disk(t, i)
		must(t, k.image(k.last, all, p.image(i)))
		must(t, sameTree(p.image(i), n.dir))
		n.must(t, nil, "ledger", "verify", n.database(), "--json")
	}
}
