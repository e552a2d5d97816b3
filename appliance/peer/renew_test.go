package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

const day = 24 * time.Hour

// A certificate is renewed after two thirds of its life, and if it was not issued by the clock that
// the node has now.
func TestDue(t *testing.T) {
	a := found(t)
	issuedAt := a.NotBefore().Add(backdate)
	for _, tt := range []struct {
		doc   string
		after time.Duration
		want  bool
	}{
		{"new", 0, false},
		{"its clock went back by an hour", -time.Hour, false},
		{"a clock ahead by more than a day", -25 * time.Hour, true},
		{"a clock ahead by a month", -30 * day, true},
		{"before two thirds", 60*day - time.Second, false},
		{"two thirds", 60 * day, true},
		{"expired", 100 * day, true},
	} {
		now := issuedAt.Add(tt.after)
		if got := a.Due(now); got != tt.want {
			t.Errorf("%s: due %v", tt.doc, got)
		}
		if expired := a.CheckDates(now) != nil; expired && !tt.want {
			t.Errorf("%s: out of date, and not due", tt.doc)
		}
	}
	key := a.leaf().PublicKey.(ed25519.PublicKey)
	cert, err := a.authority.issue(a.ServerID(), key, issuedAt, issuedAt.Add(authorityLife))
	if err != nil {
		t.Fatal(err)
	}
	old, err := NewIdentity(
		a.info, schema, a.chain.Load().PrivateKey.(ed25519.PrivateKey), cert, a.CACertPEM(), a.authority,
	)
	if err != nil || !old.Due(issuedAt) {
		t.Errorf("a certificate of ten years: %v", err)
	}
}

// Connections that are open go on after either side has renewed its certificate, and new ones show
// the new certificates, also when the old ones have expired.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t)
		b, err := another(t, a).WithAuthority(a.Authority())
		if err != nil {
			t.Fatal(err)
		}
		ln := newPipes()
		p := start(t, ln, a, nil)
		connect := func() (out *tls.Conn, in *Conn) {
			out = tls.Client(ln.dial("192.0.2.1"), b.clientConfig(ProtoPeer))
			if err := out.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			c, err := p.Peer().Accept()
			if err != nil {
				t.Fatal(err)
			}
			return out, c.(*Conn)
		}
		out, in := connect()
		time.Sleep(renewAt)
		for _, id := range []*Identity{a, b} {
			was := id.NotAfter()
			fresh, err := id.Renewed(time.Now())
			if err != nil || !id.NotAfter().Equal(was) {
				t.Fatalf("until %v, was %v: %v", id.NotAfter(), was, err)
			}
			id.Adopt(fresh)
			if id.Due(time.Now()) || id.NotAfter().Sub(was) != renewAt {
				t.Errorf("renewed until %v, was %v", id.NotAfter(), was)
			}
		}
		time.Sleep(nodeLife - renewAt + time.Hour) // the first certificates have expired
		out2, in2 := connect()
		shown := out2.ConnectionState().PeerCertificates[0]
		if !shown.Equal(a.leaf()) || shown.Equal(out.ConnectionState().PeerCertificates[0]) {
			t.Error("a new connection shows the old certificate")
		}
		for _, pair := range []struct{ from, to net.Conn }{{out, in}, {in, out}, {out2, in2}} {
			go func() { _, _ = pair.from.Write([]byte("x")) }()
			if _, err := pair.to.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}
		for _, c := range []net.Conn{in, in2} {
			_ = c.(*Conn).Conn.(*tls.Conn).NetConn().Close() // a pipe has no buffer for the last record
		}
		_, _ = out.NetConn().Close(), out2.NetConn().Close()
	})
}

// A node that does not know whether its clock is right takes a certificate that is out of date by
// that clock, and no other one.
func TestClockUnsure(t *testing.T) {
	a := found(t)
	p := start(t, loopback(t), a, nil)
	serve(t, p, whoami, whoami)
	addr := p.Peer().Addr().String()
	for _, sure := range []bool{true, false} {
		wrong := func() (time.Time, bool) { return time.Now().Add(2 * nodeLife), sure }
		c, err := another(t, a).WithClock(wrong).Dial(t.Context(), addr, ProtoPeer)
		if sure != errors.Is(err, ErrStranger) || !sure && err != nil {
			t.Errorf("sure %v: err = %v", sure, err)
		}
		if err == nil {
			_ = c.Close()
		}
		if _, err := found(t).WithClock(wrong).Dial(t.Context(), addr, ProtoPeer); !errors.Is(err, ErrStranger) {
			t.Errorf("another cluster: err = %v, want ErrStranger", err)
		}
	}
}

// A renewal that was cut off after it wrote the key leaves an identity that works until the same
// time.
func TestRenewalCutOff(t *testing.T) {
	a := found(t)
	dir, renewed := filepath.Join(t.TempDir(), "cluster"), filepath.Join(t.TempDir(), "cluster")
	fresh, err := a.Renewed(time.Now().Add(renewAt))
	if err = errors.Join(err, a.Save(dir), fresh.Save(renewed), swap(renewed, KeyFile)(t, dir)); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir, schema)
	if err != nil {
		t.Fatal(err)
	}
	if !got.NotAfter().Equal(a.NotAfter()) || !got.NotBefore().Equal(a.NotBefore()) || got.info != a.info {
		t.Errorf("%+v from %v until %v", got.info, got.NotBefore(), got.NotAfter())
	}
	if bytes.Equal(got.CertPEM(), a.CertPEM()) {
		t.Error("the certificate is not that of the key")
	}
}

func TestRenewedWithoutAuthority(t *testing.T) {
	if _, err := another(t, found(t)).Renewed(time.Now()); !errors.Is(err, ErrNoAuthority) {
		t.Errorf("err = %v", err)
	}
}
