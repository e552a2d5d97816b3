package member

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/store"
)

// slow is a listener that takes time on the clock and closes each connection.
func slow(t *testing.T, clock *atomic.Int64, takes time.Duration) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			clock.Add(int64(takes))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// The time that dead addresses take is not a difference of clocks, and an answer that took long
// tells nothing about them.
func TestHelloMeasuresTheClock(t *testing.T) {
	l := lead(t)
	d := empty(t)
	id, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{})))
	if err != nil {
		t.Fatal(err)
	}
	client := id.Client()
	defer client.CloseIdleConnections()
	var clock, late atomic.Int64 // ns of both nodes, and those that pass at each look of the leader
	const ahead = time.Hour      // of this node
	l.server.d.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Add(late.Load()))) }
	now := func() time.Time { return time.Now().Add(ahead + time.Duration(clock.Load())) }
	addrs := []string{slow(t, &clock, 5*time.Second), l.addr}
	h := Hello{Versions: peer.ThisProgram(store.Schema), Advertise: id.Advertise()}

	got, err := SayHello(t.Context(), client, addrs, now, h)
	if err != nil || !got.Skew.Counts() || (got.Skew.By+ahead).Abs() > peer.MaxSkew {
		t.Errorf("%+v, %v", got, err)
	}
	if by := l.cluster.clocks[id.ServerID()]; (by-ahead).Abs() > peer.MaxSkew || got.Clocks["other"].Age != 9 {
		t.Errorf("the leader finds %v, and relays %v", by, got.Clocks)
	}
	clear(l.cluster.clocks)
	late.Store(int64(time.Second))
	if got, err = SayHello(t.Context(), client, addrs, now, h); err != nil || got.Skew.Counts() {
		t.Errorf("a second each way: %+v, %v", got, err)
	}
	if len(l.cluster.clocks) != 0 {
		t.Errorf("a second each way: the leader finds %v", l.cluster.clocks)
	}
}

// A member is reached at another address once it answers there, and not before.
func TestMemberMoves(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	id, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	old := l.cluster.Address(id.ServerID())
	client := id.Client()
	defer client.CloseIdleConnections()
	tell := func(addr string) (why string) {
		t.Helper()
		h := Hello{Versions: peer.ThisProgram(store.Schema), Advertise: addr}
		answer, err := SayHello(t.Context(), client, []string{l.addr}, time.Now, h)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Unreached
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	for _, bad := range []string{"127.0.0.1:1", "nowhere", l.addr, slow(t, new(atomic.Int64), 0)} {
		if why := tell(bad); why == "" || l.cluster.Address(id.ServerID()) != old {
			t.Errorf("%s: %q, the address is %s", bad, why, l.cluster.Address(id.ServerID()))
		}
	}
	cat := flow.NewCatalog(nil, nil)
	port := peer.Listen(ln, id, peer.Options{Catalog: cat})
	sup := flow.NewSupervisor(t.Context(), cat, flow.Hooks{})
	sup.Start(port.Tasks()...)
	t.Cleanup(sup.Close)
	t.Cleanup(func() { _ = port.Close() })
	for range 2 {
		if why := tell(addr); why != "" || l.cluster.Address(id.ServerID()) != addr {
			t.Errorf("%q, the address is %s", why, l.cluster.Address(id.ServerID()))
		}
	}
	if want := []string{"cluster.address " + old + " " + addr}; !slices.Equal(l.noted, want) {
		t.Errorf("audit rows %q, want %q", l.noted, want)
	}
}

// expire gives the node a certificate that has ended.
func expire(t *testing.T, d *Dir) *peer.Identity {
	t.Helper()
	id, err := d.Identity()
	if err == nil {
		err = d.Renew(id, time.Now().Add(-100*24*time.Hour))
	}
	if err != nil || id.CheckDates(time.Now()) == nil {
		t.Fatalf("until %v: %v", id.NotAfter(), err)
	}
	return id
}

// A member whose certificate has ended renews it, and the leader, which refused the old one, takes
// the new one and appends an audit row. Without the file it can begin anew as before.
func TestRenewalOfAMember(t *testing.T) {
	l := lead(t)
	d := empty(t)
	if _, err := d.Join(t.Context(), l.options(l.token(t, MintSpec{}))); err != nil {
		t.Fatal(err)
	}
	enter(t, d, l)
	id := expire(t, d)
	client := id.Client()
	defer client.CloseIdleConnections()
	hello := func() error {
		h := Hello{Versions: peer.ThisProgram(store.Schema), Advertise: id.Advertise(), Ends: id.NotAfter().Unix()}
		_, err := SayHello(t.Context(), client, []string{l.addr}, time.Now, h)
		return err
	}
	if hello() == nil {
		t.Error("the leader takes a certificate that has ended")
	}
	for _, earlier := range []time.Duration{time.Hour, 0} {
		if err := d.Renew(id, time.Now().Add(-earlier)); err != nil {
			t.Fatal(err)
		}
		client.CloseIdleConnections()
		if err := hello(); err != nil {
			t.Fatal(err)
		}
	}
	ends := id.NotAfter().UTC().Format(time.RFC3339)
	if want := []string{EventRotated + " " + id.ServerID() + " " + ends}; !slices.Equal(l.noted, want) {
		t.Errorf("audit rows %q, want %q", l.noted, want)
	}
	if saved, err := d.Identity(); err != nil || !saved.NotAfter().Equal(id.NotAfter()) {
		t.Errorf("saved until %v: %v", saved.NotAfter(), err)
	}

	expire(t, d)
	if _, err := d.RejoinWipe(t.Context(), JoinOptions{}); err != nil {
		t.Fatal(err)
	}
	mustBeReady(t, d, l)
}

// A renewal that is killed or cannot be written leaves the certificate that the node has.
func TestRenewalKilled(t *testing.T) {
	d := alone(t)
	id, err := d.Init(testAddr)
	if err != nil {
		t.Fatal(err)
	}
	was := id.NotAfter()
	if err := d.killAt(0).Renew(id, time.Now().Add(time.Hour)); err == nil || !id.NotAfter().Equal(was) {
		t.Errorf("until %v, was %v: %v", id.NotAfter(), was, err)
	}
}
