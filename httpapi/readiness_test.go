package httpapi_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/obs"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
)

// port is the peer port of a node, without a network.
type port struct {
	node  *rig
	from  string // id of the sender; "": it is no member
	hangs bool
	asked int
}

func (p *port) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked++
	if p.hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	p.node.PeerHandler(func(*http.Request) string { return p.from }).ServeHTTP(w, r)
	return w.Result(), nil
}

// following returns node A, which leads, the peer port of A, and node B, which follows.
func following(t *testing.T) (a *rig, to *port, b *rig, inB *fakeCluster) {
	t.Helper()
	inA := &fakeCluster{self: nodeA, leader: nodeA}
	inA.leads.Store(true)
	keys := func(_ *httpapi.Settings, d *deps) {
		d.Board.Add(obs.Probe{Service: serviceWallet, Key: "ledger", Hard: true, Plane: obs.WritePlane})
		d.Board.Set(serviceWallet, "ledger", nil)
	}
	a = newRig(t, keys, clustered(inA))
	to = &port{node: a, from: nodeB}
	inB = &fakeCluster{self: nodeB, leader: nodeA, addr: "a:1", peer: to}
	return a, to, newRig(t, keys, clustered(inB)), inB
}

// readyz returns the answer of a node to GET /readyz as "200" or "503 " and the missing keys.
func readyz(t *testing.T, r *rig, query string) string {
	t.Helper()
	w := r.do("GET", "/readyz"+query, "", nil)
	var ready wire.Ready
	if err := json.Unmarshal(w.Body.Bytes(), &ready); err != nil {
		t.Fatal(err)
	}
	if ready.Ready != (w.Code == 200) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	return strings.TrimSpace(http.StatusText(w.Code) + " " + strings.Join(ready.Missing, " "))
}

const (
	isReady = "OK"
	unready = "Service Unavailable "
)

// A node that does not lead is as ready as the leader, and learns of a change within a second.
func TestAFollowerIsAsReadyAsItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, to, b, _ := following(t)
		expect := func(query, want string) {
			t.Helper()
			if got := readyz(t, b, query); got != want {
				t.Errorf("/readyz%s: %q, want %q", query, got, want)
			}
		}
		expect("", isReady)
		a.Deps().Board.Set(serviceWallet, "ledger", errors.New("stalled"))
		expect("", isReady)
		time.Sleep(time.Second)
		expect("", unready+"wallet.ledger")
		expect("?plane=read", isReady+" wallet.ledger")
		expect("?service=wallet", unready+"wallet.ledger")
		if asked := to.asked; asked != 4 {
			t.Errorf("the leader was asked %d times, want 4", asked)
		}
		r := b.Report("", "")
		if r.WriteReady || !r.ReadReady || !r.Degraded || !strings.Contains(r.Causes["wallet.ledger"], nodeA) {
			t.Errorf("report %+v", r)
		}
		if w := b.do("GET", "/readyz?service=other", "", nil); w.Code != 400 || to.asked != 4 {
			t.Errorf("an unknown service: %d", w.Code)
		}
	})
}

// The last answer stands for one that does not come, for three seconds.
func TestALeaderThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, to, b, inB := following(t)
		if got := readyz(t, b, ""); got != isReady {
			t.Fatal(got)
		}
		to.hangs = true
		for _, want := range []string{isReady, unready + "cluster.leader"} {
			time.Sleep(time.Second)
			began := time.Now()
			if got := readyz(t, b, ""); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if took := time.Since(began); took != 500*time.Millisecond {
				t.Errorf("the answer took %s", took)
			}
		}
		to.hangs = false
		if got := readyz(t, b, ""); got != isReady {
			t.Errorf("it answers again: %q", got)
		}
		inB.leader = nodeB // which is not ready to lead yet
		if got := readyz(t, b, ""); got != unready+"cluster.leader" {
			t.Errorf("another node leads: %q", got)
		}
		inB.leads.Store(true)
		if got := readyz(t, b, ""); got != isReady {
			t.Errorf("the node leads itself: %q", got)
		}
	})
}

// Two nodes that take each other for the leader do not ask each other for ever.
func TestReadinessIsAskedOnce(t *testing.T) {
	_, to, b, _ := following(t)
	to.node = b
	if got := readyz(t, b, ""); got != unready+"cluster.leader" || to.asked != 1 {
		t.Errorf("%q after %d requests", got, to.asked)
	}
}

// A node that was removed is not ready, before and after it has learned of its removal.
func TestReadinessOfARemovedNode(t *testing.T) {
	_, to, b, inB := following(t)
	to.from = ""
	if got := b.Report("", "").Causes["cluster.leader"]; !strings.Contains(got, "was removed from the cluster") {
		t.Errorf("cause %q", got)
	}
	inB.gone = true
	if got := readyz(t, b, ""); got != unready+"cluster.membership" {
		t.Error(got)
	}
}

// A node that is about to stop is not ready, and still serves what others forward to it.
func TestPredrainIsOfOneNode(t *testing.T) {
	a, _, b, _ := following(t)
	a.SetGate(httpapi.GatePredrain)
	if got := readyz(t, a, ""); got != unready+"node.predrain" {
		t.Errorf("the leader: %q", got)
	}
	if got := readyz(t, b, ""); got != isReady {
		t.Errorf("the follower: %q", got)
	}
	a.SetGate(httpapi.GateOpen)
	b.SetGate(httpapi.GatePredrain)
	if got := readyz(t, b, ""); got != unready+"node.predrain" {
		t.Errorf("the follower that stops: %q", got)
	}
}

// role=leader is for balancers that send everything to the leader.
func TestReadinessOfTheLeaderOnly(t *testing.T) {
	a, to, b, inB := following(t)
	alone := newRig(t)
	for r, want := range map[*rig]string{a: isReady, b: unready + "cluster.follower", alone: isReady} {
		if got := readyz(t, r, "?role=leader"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if to.asked != 0 {
		t.Error("the follower has asked the leader")
	}
	inB.leader = "" // none is known
	if got := readyz(t, b, "?role=leader&plane=read"); got != unready+"cluster.follower" {
		t.Errorf("without a leader: %q", got)
	}
	a.Deps().Board.Set(serviceWallet, "ledger", errors.New("stalled"))
	if got := readyz(t, a, "?role=leader"); got != unready+"wallet.ledger" {
		t.Errorf("a leader that is not ready: %q", got)
	}
	w := a.do("GET", "/readyz?role=follower", "", nil)
	if got := problemIn(t, w.Body.String()); w.Code != 400 || got.Details["field"] != "role" {
		t.Errorf("%d %+v", w.Code, got)
	}
}

// Many callers at once are one request.
func TestReadinessIsSharedByCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, to, b, _ := following(t)
		to.hangs = true
		for range 10 {
			go b.Report("", "")
		}
		synctest.Wait()
		if to.asked != 1 {
			t.Errorf("%d requests", to.asked)
		}
		time.Sleep(time.Second)
		if !slices.Equal(b.Report("", "").Missing, []string{"cluster.leader"}) {
			t.Error("it is ready")
		}
	})
}
