package httpapi

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// readStatus reads one answer's status, 0 when the connection just ends.
func readStatus(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// waitFor polls what another goroutine is about to do.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll, end := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-end:
			t.Fatalf("no %s in a minute", what)
		}
	}
}
