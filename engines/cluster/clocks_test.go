package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/engines/cluster/member"
)

// clocked is the node a. Its wall clock and those of the others are set by a test.
type clocked struct {
	*testing.T
	*Node
	set time.Time // of its wall clock
}

func newClocked(t *testing.T) *clocked {
	c := &clocked{T: t, set: time.Now()}
	c.Node = &Node{peers: peers{known: map[string]*peerState{}}, deps: Deps{
		Self:   &server{id: "a"},
		Origin: func() time.Time { return c.set },
	}}
	return c
}

func reading(ahead, age time.Duration) member.Clock {
	return member.Clock{Ahead: int64(ahead), Age: int64(age)}
}

// hears records clocks that are ahead of that of the node.
func (c *clocked) hears(ahead time.Duration, ids ...string) {
	for _, id := range ids {
		c.HeardClock(id, reading(ahead, 0))
	}
}

// off checks by how much the node finds its clock to be ahead.
func (c *clocked) off(doc string, want time.Duration) {
	c.Helper()
	ahead, _ := c.offset(c.deps.Origin())
	if skewed := want.Abs() > MostSkew; ahead != want || c.skewed() != skewed {
		c.Errorf("%s: %v ahead, skewed %t, want %v, %t", doc, ahead, c.skewed(), want, skewed)
	}
}

// A clock that is off the median of the members makes its node unfit, and no other.
func TestSkew(t *testing.T) {
	n := newClocked(t)
	n.off("nobody is heard", 0)
	n.Heard("b", member.Word{URL: "https://b"})
	n.hears(time.Second, "b")
	n.off("one of two is wrong", 0)
	n.hears(900*time.Millisecond, "c")
	n.off("its own is wrong", -900*time.Millisecond)
	n.hears(-10*time.Millisecond, "c")
	n.off("b is wrong", 0)
	n.hears(400*time.Millisecond, "d")
	n.off("between the two in the middle", -200*time.Millisecond)
	n.hears(10*time.Minute, "b", "d")
	n.off("two camps: the last median counts", -200*time.Millisecond)
	if len(n.Clocks()) != 3 || n.peers.state("b").word.URL != "https://b" {
		t.Errorf("%v", n.Clocks())
	}
}

// Two camps of clocks have no median if none was known before.
func TestSkewOfCamps(t *testing.T) {
	n := newClocked(t)
	n.hears(time.Hour, "b")
	n.hears(time.Hour+time.Millisecond, "c")
	n.hears(0, "d")
	n.peers.median = time.Time{}
	n.off("two camps", 0)
}

// A wrong clock stays wrong after one of three members has died, until two others are heard again
// or the clock is set right. The steps of a clock are those of its node alone.
func TestSkewAfterADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newClocked(t)
		n.hears(-time.Hour, "b", "c")
		n.off("all live", time.Hour)
		time.Sleep(2 * clockFor)
		n.off("none is heard", time.Hour)
		n.hears(-time.Hour, "b")
		n.HeardClock("c", reading(-time.Hour, 2*clockFor))
		n.off("b relays the old word of c", time.Hour)
		if _, relayed := n.Clocks()["c"]; relayed {
			t.Errorf("it is relayed further: %v", n.Clocks())
		}
		n.set = n.set.Add(-time.Hour)
		n.off("its clock is set right", 0)
		n.set = n.set.Add(24 * time.Hour)
		n.off("and wrong again", 24*time.Hour)
		n.set = n.set.Add(-24*time.Hour + 30*time.Second)
		n.hears(0, "b")
		n.off("b has made the same step: their machine was halted", 0)
		n.hears(-time.Minute, "b", "c")
		n.off("two are heard again", time.Minute)
		n.peers.forgetOthers(raft.Configuration{Servers: []raft.Server{{ID: "a"}}})
		n.off("no other remains", 0)
	})
}

// An old word does not replace a newer one, and one that comes by way of others ages.
func TestRelayedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newClocked(t), newClocked(t)
		a.hears(time.Second, "d")
		time.Sleep(10 * time.Second)
		a.HeardClock("d", reading(time.Hour, 20*time.Second))
		if got, want := a.Clocks()["d"], (reading(time.Second, 10*time.Second)); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		for range 10 { // the leader changes, and each has it from the other
			time.Sleep(10 * time.Second)
			for id, c := range a.Clocks() {
				b.HeardClock(id, c)
			}
			for id, c := range b.Clocks() {
				a.HeardClock(id, c)
			}
		}
		if len(a.Clocks())+len(b.Clocks()) != 0 {
			t.Errorf("a silent member counts: %v, %v", a.Clocks(), b.Clocks())
		}
	})
}
