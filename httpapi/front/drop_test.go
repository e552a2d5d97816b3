package front

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// refused sends the head of a large body and reads the answer to it. The returned channel is closed
// when the node ends the connection.
func refused(t *testing.T, c net.Conn) (ended chan struct{}) {
	t.Helper()
	_, _ = io.WriteString(c, "POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n")
	if got := readStatus(t, c); got != http.StatusRequestEntityTooLarge {
		t.Fatalf("status %d", got)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, c)
	}()
	return ended
}

// One network has the bodies of 16 connections dropped at a time; further ones end with their
// answer, and other networks have their own.
func TestDroppedBodiesOfOneNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t).listening(t)
	r.drops.lasts = time.Hour
	dropping := func() (n int) {
		r.drops.mu.Lock()
		defer r.drops.mu.Unlock()
		return len(r.drops.conns)
	}
	var within []chan struct{}
	for range dropPerNetwork {
		within = append(within, refused(t, r.dialFrom(t, "127.0.0.1")))
	}
	waitFor(t, "all of one network", func() bool { return dropping() == dropPerNetwork })
	<-refused(t, r.dialFrom(t, "127.0.0.1"))
	within = append(within, refused(t, r.dialFrom(t, "127.0.0.2")))
	waitFor(t, "another network", func() bool { return dropping() == dropPerNetwork+1 })
	for i, ended := range within {
		select {
		case <-ended:
			t.Errorf("connection %d, within the limits, has ended", i)
		default:
		}
	}
}

// The body of a client that sends nothing more is dropped for a time, and its connection ends.
func TestDroppingABodyEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t).listening(t)
	r.drops.lasts = 200 * time.Millisecond
	<-refused(t, r.dial(t))
}
