package peer

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type publicKey = ed25519.PublicKey

func TestRaftConnection(t *testing.T) {
	a := found(t)
	b := another(t, a)
	p := start(t, loopback(t), a, nil)
	c, err := b.Dial(t.Context(), p.Raft().Addr().String(), ProtoRaft)
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.Raft().Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("raft")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "raft" {
		t.Fatalf("read %q, err = %v", got, err)
	}
	if s := in.(*Conn).Server(); s != b.ServerID() {
		t.Errorf("the accepting side has server %s, want %s", s, b.ServerID())
	}
	if s := c.(*Conn).Server(); s != a.ServerID() {
		t.Errorf("the dialling side has server %s, want %s", s, a.ServerID())
	}
	for _, c := range []*Conn{in.(*Conn), c.(*Conn)} {
		if c.Hello().Versions != ThisProgram(schema) || c.Skew().Exceeds(time.Minute) {
			t.Errorf("hello = %+v, skew = %+v", c.Hello(), c.Skew())
		}
		if err := c.Close(); err != nil && !strings.Contains(err.Error(), "broken pipe") {
			t.Error(err)
		}
	}
}

// whoami answers with the PeerID of the request.
var whoami = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "peer="+PeerID(r))
})

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Do(q)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(a.Body)
	return string(text), errors.Join(err, a.Body.Close())
}

func TestHTTP(t *testing.T) {
	a := found(t)
	b := another(t, a)
	p := start(t, loopback(t), a, nil)
	serve(t, p, whoami, whoami)
	url := "https://" + p.Peer().Addr().String() + "/hello"
	client := b.Client()
	defer client.CloseIdleConnections()
	for range 2 { // the second one over the same connection
		if got, err := get(t, client, url); err != nil || got != "peer="+b.ServerID() {
			t.Errorf("over ronbox-peer: %q, err = %v", got, err)
		}
	}
	for range 3 {
		joins := JoinClient(a.Pin(), time.Now)
		if got, err := get(t, joins, url); err != nil || got != "peer=" {
			t.Fatalf("over ronbox-join: %q, err = %v", got, err)
		}
		joins.CloseIdleConnections()
	}
	joins := JoinClient(a.Pin(), time.Now)
	defer joins.CloseIdleConnections()
	conns, most := map[string]int{}, 0 // requests
	for range 2 * joinRequests {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(c httptrace.GotConnInfo) {
				at := c.Conn.LocalAddr().String()
				conns[at]++
				most = max(most, conns[at])
			},
		})
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := joins.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	// net/http leaves a connection whose write it has noted late, as on a busy machine
	if len(conns) < 2 || most > joinRequests || most < 2 {
		t.Errorf("%d requests took %d connections, one of them %d", 2*joinRequests, len(conns), most)
	}
	if r, _ := http.NewRequest(http.MethodGet, url, nil); PeerID(r) != "" {
		t.Error("a request from elsewhere has a PeerID")
	}
}

// Many requests at once of one member are all answered, though the port does few handshakes at once
// with a network.
func TestManyRequestsAtOnce(t *testing.T) {
	a := found(t)
	b := another(t, a)
	p := start(t, loopback(t), a, nil)
	serve(t, p, whoami, whoami)
	client := b.Client()
	defer client.CloseIdleConnections()
	url := "https://" + p.Peer().Addr().String() + "/hello"
	const many = 2 * mostPeer
	answers := make(chan error, many)
	for range many {
		go func() {
			_, err := get(t, client, url)
			answers <- err
		}()
	}
	failed := 0
	for range many {
		if err := <-answers; err != nil {
			if failed++; failed == 1 {
				t.Log(err)
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d requests failed", failed, many)
	}
}

func TestStrangersServer(t *testing.T) {
	a, other := found(t), found(t)
	p := start(t, loopback(t), a, nil)
	serve(t, p, whoami, whoami)
	addr := p.Peer().Addr().String()
	for _, proto := range []string{ProtoRaft, ProtoPeer} {
		if _, err := other.Dial(t.Context(), addr, proto); !errors.Is(err, ErrStranger) {
			t.Errorf("%s: err = %v, want ErrStranger", proto, err)
		}
	}
	if _, err := get(t, JoinClient(other.Pin(), time.Now), "https://"+addr+"/join"); !errors.Is(err, ErrStranger) {
		t.Errorf("another pin: err = %v, want ErrStranger", err)
	}
	later := another(t, a)
	later.now = func() time.Time { return time.Now().Add(2 * nodeLife) }
	if _, err := later.Dial(t.Context(), addr, ProtoPeer); !errors.Is(err, ErrStranger) {
		t.Errorf("an expired certificate: err = %v, want ErrStranger", err)
	}
	if _, err := a.Dial(t.Context(), addr, ProtoJoin); err == nil {
		t.Error("Dial accepts ronbox-join")
	}
}

// A stranger gets no connection, and the port serves members as before.
func TestStrangers(t *testing.T) {
	a, other := found(t), found(t)
	b := another(t, a)
	config := func(proto string, more func(*tls.Config)) *tls.Config {
		c := baseConfig(proto)
		c.InsecureSkipVerify = true
		more(c)
		return c
	}
	shows := func(id *Identity) func(*tls.Config) {
		return func(c *tls.Config) { c.Certificates = []tls.Certificate{*id.chain.Load()} }
	}
	forged := another(t, other)
	forged.chain.Load().Certificate = [][]byte{forged.leaf().Raw, a.ca.Raw}
	for _, tt := range []struct {
		doc    string
		config *tls.Config
	}{
		{"no certificate for raft", config(ProtoRaft, func(*tls.Config) {})},
		{"no certificate for peer", config(ProtoPeer, func(*tls.Config) {})},
		{"another cluster", config(ProtoPeer, shows(other))},
		{"another cluster, our authority in the chain", config(ProtoRaft, shows(forged))},
		{"an expired certificate", config(ProtoPeer, shows(issued(t, a, time.Now().Add(-2*nodeLife))))},
		{"another protocol", config("h2", shows(b))},
		{"two protocols", config(ProtoPeer, func(c *tls.Config) { c.NextProtos = []string{ProtoPeer, ProtoJoin} })},
		{"no protocol", config(ProtoPeer, func(c *tls.Config) { c.NextProtos = nil })},
		{"TLS 1.2", config(ProtoPeer, func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			c.MaxVersion = tls.VersionTLS12
		})},
		{"no TLS", nil},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			p := start(t, loopback(t), a, nil)
			raw, err := net.Dial("tcp", p.Peer().Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c := raw
			if tt.config != nil {
				c = tls.Client(raw, tt.config)
			}
			_, _ = io.WriteString(c, "POST /join HTTP/1.1\r\nHost: x\r\n\r\n")
			answer, err := io.ReadAll(c)
			if tt.config != nil && (err == nil || len(answer) > 0) {
				t.Errorf("answer %q, err = %v, want an error", answer, err)
			}
			_ = raw.Close()
			in, err := b.Dial(t.Context(), p.Peer().Addr().String(), ProtoPeer)
			if err != nil {
				t.Fatal(err)
			}
			_ = in.Close()
			got, err := p.Peer().Accept()
			if err != nil || got.(*Conn).Server() != b.ServerID() {
				t.Fatalf("Accept = %v, err = %v, want the member", got, err)
			}
			_ = got.Close()
		})
	}
}

func TestHelloRefusals(t *testing.T) {
	a := found(t)
	var members map[string]bool
	p := start(t, loopback(t), a, func(server string) bool { return members[server] })
	old, next, gone := another(t, a), another(t, a), another(t, a)
	old.speaks.Schema--
	next.speaks.Formats = [2]int{newestFormat + 1, newestFormat + 2}
	members = map[string]bool{old.ServerID(): true, next.ServerID(): true, a.ServerID(): true}
	for _, tt := range []struct {
		from *Identity
		want Reason
	}{{old, ReasonSchema}, {next, ReasonFormat}, {gone, ReasonMember}, {a, ReasonSelf}} {
		_, err := tt.from.Dial(t.Context(), p.Raft().Addr().String(), ProtoRaft)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Reason != tt.want || !errors.Is(err, ErrRefused) {
			t.Errorf("err = %v, want a refusal for %s", err, tt.want)
		}
	}
}

// A Hello may lie about its cluster and server.
func TestHelloLies(t *testing.T) {
	a := found(t)
	b := another(t, a)
	other := found(t)
	for _, tt := range []struct {
		change func(*Hello)
		want   Reason
	}{
		{func(h *Hello) { h.Cluster = other.ClusterID() }, ReasonCluster},
		{func(h *Hello) { h.Server = other.ServerID() }, ReasonServer},
		{func(h *Hello) { h.Server = strings.Repeat("x", 3800) }, ReasonServer},
	} {
		h := b.hello()
		tt.change(&h)
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() {
			_, _, err := a.answer(there, b.ServerID(), time.Now(), nil)
			done <- err
		}()
		if err := writeHello(here, h); err != nil {
			t.Fatal(err)
		}
		got, err := readHello(here)
		if err != nil || got.Refused == nil || got.Refused.Reason != tt.want {
			t.Errorf("answer %+v, err = %v, want a refusal for %s", got.Refused, err, tt.want)
		}
		if err := <-done; !errors.Is(err, ErrRefused) {
			t.Errorf("err = %v, want ErrRefused", err)
		}
	}
}

// closedAfter returns when the other side closes c.
func closedAfter(c net.Conn) time.Duration {
	from := time.Now()
	_, _ = io.Copy(io.Discard, c)
	return time.Since(from)
}

// secured returns c after the TLS handshake of a member.
func secured(t *testing.T, c net.Conn, id *Identity, proto string) *tls.Conn {
	t.Helper()
	config := baseConfig(proto)
	config.Certificates, config.InsecureSkipVerify = []tls.Certificate{*id.chain.Load()}, true
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return secure
}

func TestSlowHandshakes(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		send func(t *testing.T, c net.Conn, b *Identity)
	}{
		{"nothing", func(*testing.T, net.Conn, *Identity) {}},
		{"half a record", func(_ *testing.T, c net.Conn, _ *Identity) { _, _ = c.Write([]byte{22, 3, 1, 2, 0, 1}) }},
		{"no hello", func(t *testing.T, c net.Conn, b *Identity) { secured(t, c, b, ProtoRaft) }},
		{"half a hello", func(t *testing.T, c net.Conn, b *Identity) {
			_, _ = secured(t, c, b, ProtoRaft).Write([]byte{0, 200, '{'})
		}},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := found(t)
				ln := newPipes()
				start(t, ln, a, nil)
				c := ln.dial("192.0.2.1")
				tt.send(t, c, another(t, a))
				if took := closedAfter(c); took != handshakeWithin {
					t.Errorf("closed after %v, want %v", took, handshakeWithin)
				}
				_ = c.Close()
			})
		})
	}
}

func TestHugeHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t)
		ln := newPipes()
		start(t, ln, a, nil)
		c := ln.dial("192.0.2.1")
		secure := secured(t, c, another(t, a), ProtoRaft)
		_, _ = secure.Write([]byte{0xff, 0xff})
		if took := closedAfter(secure); took != 0 {
			t.Errorf("closed after %v, want at once", took)
		}
		_ = c.Close()
	})
}

// Silent connections of strangers keep neither a member nor each other's network out.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t)
		b := another(t, a)
		ln := newPipes()
		p := start(t, ln, a, nil)
		enter := func(from string) bool {
			c := ln.dial(from)
			defer func() { _ = c.Close() }()
			config := baseConfig(ProtoPeer)
			config.Certificates, config.InsecureSkipVerify = []tls.Certificate{*b.chain.Load()}, true
			if tls.Client(c, config).HandshakeContext(t.Context()) != nil {
				return false
			}
			in, err := p.Peer().Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close() // first: a pipe has no buffer for the last record of in
			_ = in.Close()
			time.Sleep(strangerPause)
			synctest.Wait()
			return true
		}
		held := func() int {
			p.handshakes.mu.Lock()
			defer p.handshakes.mu.Unlock()
			return p.handshakes.used
		}
		var open []net.Conn
		for range 100 {
			open = append(open, ln.dial("192.0.2.1"))
		}
		synctest.Wait()
		if n := held(); n != perNetwork {
			t.Errorf("one network holds %d handshakes, want %d", n, perNetwork)
		}
		if !enter("198.51.100.1") {
			t.Error("one network keeps others out")
		}
		for n := range 250 {
			open = append(open, ln.dial(fmt.Sprintf("203.0.113.%d", n)))
		}
		synctest.Wait()
		if n := held(); n != acceptors-reserved {
			t.Errorf("strangers hold %d handshakes, want %d", n, acceptors-reserved)
		}
		if !enter("198.51.100.1") {
			t.Error("strangers keep a known network out")
		}
		p.Know(t.Context(), []string{"198.51.100.3:7443", "no port"})
		if !enter("198.51.100.3") {
			t.Error("strangers keep out a member that has not come before")
		}
		if enter("198.51.100.2") {
			t.Error("there is room for an unknown network: the test is broken")
		}
		time.Sleep(handshakeWithin + strangerPause)
		synctest.Wait()
		if !enter("198.51.100.2") || held() != 0 {
			t.Errorf("after the deadline %d handshakes are held", held())
		}
		for _, c := range open {
			_ = c.Close()
		}
	})
}

// Beyond the bound, connections of Join are closed; a closed one makes room.
func TestJoinBound(t *testing.T) {
	a := found(t)
	p := start(t, loopback(t), a, nil)
	member, err := another(t, a).Dial(t.Context(), p.Raft().Addr().String(), ProtoRaft)
	if err != nil { // it makes the network known, so that its handshakes are not slowed down
		t.Fatal(err)
	}
	_ = member.Close()
	dial := func() (*tls.Conn, error) {
		config := baseConfig(ProtoJoin)
		config.InsecureSkipVerify = true
		return tls.Dial("tcp", p.Join().Addr().String(), config)
	}
	var in []net.Conn
	for range mostJoinEach {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		got, err := p.Join().Accept()
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, got)
	}
	if c, err := dial(); err == nil { // or it is closed before dial returns
		if n, err := io.Copy(io.Discard, c); n != 0 {
			t.Errorf("read %d bytes, err = %v", n, err)
		}
		_ = c.Close()
	}
	for _, got := range in {
		_ = got.Close()
		_ = got.Close() // frees its slot once
	}
	c, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Join().Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Close()
	_ = c.Close()
	if n := p.join.used; n != 0 {
		t.Errorf("%d slots are in use", n)
	}
}

func TestClose(t *testing.T) {
	a := found(t)
	b := another(t, a)
	p := start(t, loopback(t), a, nil)
	c, err := b.Dial(t.Context(), p.Raft().Addr().String(), ProtoRaft)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, c) // ends: the queued connection was closed
	_ = c.Close()
	for _, ln := range []net.Listener{p.Raft(), p.Peer(), p.Join()} {
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: err = %v, want net.ErrClosed", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.Dial(ctx, p.Raft().Addr().String(), ProtoRaft); err == nil {
		t.Error("the closed port accepts")
	}
}
