package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"ronbox/httpapi"
)

const sentBeforeReading = 32 << 20 // bytes that a refused request may send and still read its answer

// sendAll writes a whole request before it reads, as most simple clients do, and returns the status
// of the answer.
func sendAll(c net.Conn, head string, chunked bool, n int) (status int, err error) {
	if _, err := io.WriteString(c, head); err != nil {
		return 0, err
	}
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for ; n > 0; n -= len(piece) {
		if chunked {
			_, err = fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece)
		} else {
			_, err = c.Write(piece)
		}
		if err != nil {
			return 0, fmt.Errorf("write: %w", err)
		}
	}
	if chunked {
		_, _ = io.WriteString(c, "0\r\n\r\n")
	}
	return statusIn(c)
}

// A request that is refused before its body was read gets its answer, although the client reads
// nothing before it has sent 32 MiB.
func TestRefusedBodiesAreDropped(t *testing.T) {
	overBoth(t, func(*httpapi.Settings, *deps) {}, func(t *testing.T, r *rig) {
		for _, tt := range []struct {
			doc, head string
			n         int // bytes
			chunked   bool
			status    int
		}{
			{"as much as is dropped", proposeHead, sentBeforeReading, false, http.StatusRequestEntityTooLarge},
			{"in chunks", proposeHead, 16 << 20, true, http.StatusRequestEntityTooLarge},
			{"without a token", "POST /registry/proposals HTTP/1.1\r\nHost: x\r\n", 8 << 20, false, http.StatusUnauthorized},
			{"no route", "POST /nowhere HTTP/1.1\r\nHost: x\r\n", 8 << 20, false, http.StatusNotFound},
			{"another type", proposeHead + "Content-Encoding: br\r\n", 8 << 20, false, http.StatusRequestEntityTooLarge},
			{"refused by the listener", proposeHead + "Folded: a\r\n b\r\n", 8 << 20, false, http.StatusBadRequest},
			{"of a client that closes", proposeHead + "Connection: close\r\n", 8 << 20, false, http.StatusRequestEntityTooLarge},
		} {
			head := fmt.Sprintf("%sContent-Length: %d\r\n\r\n", tt.head, tt.n)
			if tt.chunked {
				head = tt.head + "Transfer-Encoding: chunked\r\n\r\n"
			}
			c := r.open(t)
			if got, err := sendAll(c, head, tt.chunked, tt.n); got != tt.status || err != nil {
				t.Errorf("%s: %d %v, want %d", tt.doc, got, err, tt.status)
			}
			_ = c.Close()
		}
		for range 4 {
			req, _ := http.NewRequest(http.MethodPost, r.url+"/registry/proposals",
				bytes.NewReader(make([]byte, 9<<20)))
			req.Header.Set("Authorization", "Bearer good")
			req.Header.Set("Content-Type", "application/json")
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatalf("net/http: %v", err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("net/http: %d", resp.StatusCode)
			}
		}
	})
}
