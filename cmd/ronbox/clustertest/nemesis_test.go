package clustertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"ronbox/httpapi/wire"
)

// exitCorrupt is the exit code of a node whose files contradict each other.
const exitCorrupt = 65

// The times for which a nemesis holds.
const (
	pauseTime = 5 * time.Second // longer than an election
	cutTime   = 8 * time.Second // longer than a leader keeps its office without a quorum
	linkDelay = 200 * time.Millisecond
)

// nemesis disturbs the cluster and repairs it, while the load of a round runs.
type nemesis struct {
	name string
	does func(t testing.TB, c *cluster, r *round, d *rand.Rand)
}

func nemeses() []nemesis {
	return []nemesis{
		{"lead", killLeader},
		{"follow", killFollower},
		{"all", killAll},
		{"pause", pauseLeader},
		{"cut", cutLeader},
		{"out", cutLeaderOut},
		{"in", cutLeaderIn},
		{"wipe", wipeOne},
		{"oldlog", oldLog},
		{"replace", replaceOne},
		{"slow", slowLinks},
		{"ring", cutOneLink},
		{"flap", flapLinks},
		{"cutkill", cutAndKill},
		{"eio", failSync},
		{"stall", stallSync},
		{"flip", flipBit},
		{"install", killInstall},
		{"full", fillDisk},
		{"revoke", revokeToken},
		{"upload", killAtUpload},
		{"term", stopLeader},
		{"termall", stopAll},
		{"termboot", stopBoot},
		{"termelect", stopElected},
		{"termlife", stopDeposed},
		{"termstall", stopStalled},
		{"termalone", stopWithoutQuorum},
		{"hand", transferOften},
		{"brim", fillLeader},
		{"behind", turnLeaderBack},
		{"ahead", turnLeaderAhead},
		{"move", moveOne},
	}
}

// hold lets a disturbance last. It is not a wait for an event.
func hold(d time.Duration) { time.Sleep(d) }

// killLeader kills the leader, and starts it at once or after the others have elected another one.
func killLeader(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	c.nodes[i].kill()
	if d.IntN(3) > 0 {
		c.leader(t)
	}
	c.start(t, i)
}

func killFollower(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.follower(t, d)
	c.nodes[i].kill()
	hold(time.Duration(d.Int64N(int64(2 * time.Second))))
	c.start(t, i)
}

// killAll kills all nodes at once and starts them in another order.
func killAll(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	for _, n := range c.nodes {
		n.signal(syscall.SIGKILL)
	}
	for _, i := range d.Perm(len(c.nodes)) {
		<-c.nodes[i].proc.done
		c.start(t, i)
	}
}

// pauseLeader stops the process of the leader until another one leads, with readers that have asked
// it and wait. When it continues, it must not answer them with old balances.
func pauseLeader(t testing.TB, c *cluster, r *round, d *rand.Rand) {
	i := c.leader(t)
	c.nodes[i].signal(syscall.SIGSTOP)
	var readers sync.WaitGroup
	ctx, stop := context.WithTimeout(t.Context(), pauseTime+askWithin)
	defer stop()
	for id := range 20 {
		d := rand.New(rand.NewPCG(d.Uint64(), 0))
		readers.Go(func() {
			shortPause(ctx, d, pauseTime)
			r.bank.readAt(ctx, r.payments, bankClients+id, d.IntN(accounts), i)
		})
	}
	hold(pauseTime)
	c.nodes[i].signal(syscall.SIGCONT)
	readers.Wait()
}

// cutLeader cuts the leader off from the others.
func cutLeader(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.leader(t)
	c.cut(d, append(c.links.from(i), c.links.to(i)...))
}

// cutLeaderOut loses what the leader sends.
func cutLeaderOut(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	c.cut(d, c.links.from(c.leader(t)))
}

// cutLeaderIn loses what the leader is sent.
func cutLeaderIn(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	c.cut(d, c.links.to(c.leader(t)))
}

func (c *cluster) cut(d *rand.Rand, ways []way) {
	c.links.lose(ways...)
	hold(cutTime)
	c.links.heal(d.IntN(2) == 0)
}

// slowLinks delays all data between the nodes.
func slowLinks(_ testing.TB, c *cluster, _ *round, _ *rand.Rand) {
	c.links.slow(linkDelay)
	hold(cutTime)
	c.links.heal(false)
}

// cutOneLink cuts the leader off from one follower, which still reaches the other one.
func cutOneLink(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	leader, i := c.leader(t), c.follower(t, d)
	c.cut(d, []way{{leader, i}, {i, leader}})
}

// flapLinks cuts one direction after the other for a moment.
func flapLinks(_ testing.TB, c *cluster, _ *round, d *rand.Rand) {
	for until := time.Now().Add(cutTime); time.Now().Before(until); {
		i := d.IntN(len(c.nodes))
		c.links.lose(c.links.from(i)[d.IntN(len(c.nodes)-1)])
		hold(100*time.Millisecond + time.Duration(d.Int64N(int64(time.Second))))
		c.links.heal(d.IntN(2) == 0)
	}
}

// cutAndKill cuts the leader off, and kills and starts a follower that has just heard of it.
func cutAndKill(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	leader, i := c.leader(t), c.follower(t, d)
	c.links.lose(append(c.links.from(leader), c.links.to(leader)...)...)
	c.nodes[i].kill()
	c.start(t, i)
	hold(cutTime)
	c.links.heal(d.IntN(2) == 0)
}

// wipeOne kills a node at random, takes its files, and lets it begin anew under a new id.
func wipeOne(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := d.IntN(len(c.nodes))
	c.nodes[i].kill()
	c.leader(t)
	if d.IntN(2) == 0 { // the disk was replaced, but for the certificate
		must(t, os.Remove(filepath.Join(c.nodes[i].dir, "ronbox.db")))
		must(t, os.RemoveAll(filepath.Join(c.nodes[i].dir, "raft")))
	}
	c.rejoin(t, i)
}

// rejoin lets a stopped node begin anew.
func (c *cluster) rejoin(t testing.TB, i int) {
	t.Helper()
	c.nodes[i].must(t, nil, "cluster", "rejoin", "--wipe", "--json")
	c.start(t, i)
}

// oldLog puts back the log that a follower had some time ago. The node has forgotten what it
// acknowledged since, so it must not start.
func oldLog(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.follower(t, d)
	n := c.nodes[i]
	raft, old := filepath.Join(n.dir, "raft"), filepath.Join(filepath.Dir(n.dir), "old")
	n.kill()
	copyDir(t, raft, old)
	c.start(t, i)
	c.well(t)
	hold(time.Second) // payments go on
	n.kill()
	copyDir(t, old, raft)
	c.start(t, i)
	if code := n.ended(t); code != exitCorrupt {
		t.Fatalf("a node with an old log ended with %d:\n%s", code, n.proc.log)
	}
	c.rejoin(t, i)
}

// revokeToken kills the leader when a token that a node has accepted was revoked at another one. All
// nodes must refuse the token.
func revokeToken(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	order := d.Perm(len(c.nodes))
	var token struct {
		Token string `json:"token"`
		TID   string `json:"tid"`
	}
	c.nodes[order[0]].must(t, &token, "token", "mint", "--scope", "wallet.read", "--json")
	s := newService(t, token.Token, c.nodes...)
	_, _, err := s.balance(t.Context(), order[1], 0)
	must(t, err)
	c.nodes[order[2]].must(t, nil, "token", "revoke", token.TID, "--yes", "--json")
	i := c.leader(t)
	c.nodes[i].kill()
	c.leader(t)
	c.start(t, i)
	c.well(t)
	for place, n := range c.nodes {
		_, _, err := s.balance(t.Context(), place, 0)
		if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Status != http.StatusUnauthorized {
			t.Fatalf("%s answers to a revoked token: %v", n.name, err)
		}
	}
}

// replaceOne lets any node leave, or removes a follower that may have failed, and lets a new node
// join in its place.
func replaceOne(t testing.TB, c *cluster, _ *round, d *rand.Rand) {
	i := c.follower(t, d)
	remove := []string{"cluster", "remove", c.id(t, i), "--yes", "--json"}
	switch d.IntN(3) {
	case 0:
		i = d.IntN(len(c.nodes))
		c.nodes[i].must(t, nil, "cluster", "leave", "--json")
		if code := c.nodes[i].ended(t); code != exitClean && code != exitAborted {
			t.Errorf("%s has left, and ended with %d", c.nodes[i].name, code)
		}
	case 1:
		c.nodes[i].kill()
		c.nodes[c.leader(t)].must(t, nil, remove...)
	case 2:
		c.nodes[c.leader(t)].must(t, nil, remove...)
		c.nodes[i].kill()
	}
	must(t, os.RemoveAll(c.nodes[i].dir))
	c.join(t, i)
}
