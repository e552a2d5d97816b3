package upstream

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
)

// nameServer answers every question for an A with the address it is set to, and any other with
// nothing.
type nameServer struct {
	net.PacketConn
	address atomic.Pointer[netip.Addr]
	asked   atomic.Int64
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{PacketConn: conn}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run()
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return s
}

func (s *nameServer) run() {
	packet := make([]byte, 512)
	for {
		n, from, err := s.ReadFrom(packet)
		if err != nil {
			return
		}
		end := 12
		for end < n && packet[end] != 0 {
			end += int(packet[end]) + 1
		}
		end += 5
		isA := binary.BigEndian.Uint16(packet[end-4:]) == 1
		answer := append([]byte{packet[0], packet[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, packet[12:end]...)
		if isA {
			s.asked.Add(1)
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			a := s.address.Load().As4()
			answer = append(answer, a[:]...)
		}
		_, _ = s.WriteTo(answer, from)
	}
}

// A name that resolves to another address is checked for each connection.
func TestNameThatTurnsPrivate(t *testing.T) {
	names := newNameServer(t)
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "body")
	}, func(s *Spec) { s.Guard.Allow, s.Tries = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, 1 })
	r.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", names.LocalAddr().String())
	}}
	everywhere, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.server.Config.Serve(tls.NewListener(everywhere, r.server.TLS)) // with a certificate for example.com
	}()
	defer func() { _ = everywhere.Close(); <-done }()
	_, port, _ := net.SplitHostPort(everywhere.Addr().String())
	for address, want := range map[string]error{"127.0.0.2": nil, "127.0.0.1": ErrAddress, "10.0.0.1": ErrAddress, "169.254.169.254": ErrAddress} {
		before, to := r.asked.Load(), netip.MustParseAddr(address)
		names.address.Store(&to)
		err := r.Get(
			context.Background(),
			Request{URL: "https://example.com:" + port + "/x", Max: 100},
			func(a *Answer) error {
				_, err := io.ReadAll(a.Body)
				return err
			},
		)
		if !errors.Is(err, want) || (r.asked.Load() == before) != (want != nil) {
			t.Errorf("%s: %v, asked %d times", address, err, r.asked.Load()-before)
		}
	}
	if names.asked.Load() == 0 {
		t.Error("no name was asked for")
	}
}
