package front

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/unit"
)

// The kernel counts an urgent byte as received: who sends one and asks nothing is silent all the same.
func TestUrgentByteIsNoRequestOnTheWay(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls ", secure), func(t *testing.T) {
			change := []func(*setup){func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved, s.cfg.ReadTimeout = 1, 2, unit.Duration(time.Minute) }}
			if secure {
				change = append(change, withTLS(t))
			}
			r := newRig(t, change...).listening(t)
			r.dial(t)
			for range 2 {
				c := r.dial(t)
				urgent(t, c)
				urgent(t, c)
			}
			waitFor(t, "the reserve to be taken", func() bool { return r.Conns() == 3 })
			waitFor(t, "moment to pass", func() bool { return time.Since(r.tcp.book.reserved()[1].since) > moment })
			for _, l := range r.tcp.book.reserved() {
				waitFor(t, "one of whom nothing can be read to make room", l.idles)
			}
		})
	}
}

// Who holds every place beyond the reserve by a byte that nobody can read keeps no probe out.
func TestUrgentBytesDoNotStarveProbes(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 1, 2 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	for range newcomers + 2 {
		urgent(t, r.dial(t))
	}
	for range 5 {
		c := r.dial(t)
		if status, _, _ := ask(t, c, "/probe"); status != http.StatusOK {
			t.Errorf("probe: %d", status)
		}
		_ = c.Close()
	}
}

func urgent(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
