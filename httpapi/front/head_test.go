package front

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A header folded over lines is refused, also where net/http makes a good one of it, and behind
// another request of its connection.
func TestFoldedHeaders(t *testing.T) {
	for _, head := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n 2\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nAuthorization: Bearer\r\n\tx\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\nX: y\n \n\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX:\r\n  \r\n y\r\n\r\n",
	} {
		for _, before := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\na\r\n b\r\n\r\n"} {
			r := newRig(t).listening(t)
			c := r.dial(t)
			_, _ = io.WriteString(c, before+head)
			answers := bufio.NewReader(c)
			next := func() (*http.Response, string) {
				a, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatalf("%q behind %q: %v", head, before, err)
				}
				body, _ := io.ReadAll(a.Body)
				return a, string(body)
			}
			if before != "" {
				if a, body := next(); a.StatusCode != 200 {
					t.Fatalf("%q: %d %s", before, a.StatusCode, body)
				}
			}
			a, body := next()
			if a.StatusCode != 400 || !strings.Contains(body, "folded") || !a.Close ||
				a.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%q behind %q: %d %s %v", head, before, a.StatusCode, body, a.Header)
			}
			if r.counted("malformed") != 1 || r.calls.Load() != int64(min(1, len(before))) {
				t.Errorf("%q behind %q: counted %v, %d calls", head, before, r.tally(), r.calls.Load())
			}
		}
	}
}

// The limit of a head is that of server.max_header, to the byte.
func TestHeadLimit(t *testing.T) {
	r := newRig(t).listening(t)
	limit := r.tcp.f.maxHeader
	for length, want := range map[int]int{limit: 200, limit + 1: 431, limit + 4000: 431, limit + 5000: 431} {
		c := r.dial(t)
		head := "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n"
		head = strings.Replace(head, "X: ", "X: "+strings.Repeat("x", length-len(head)), 1)
		for range 2 {
			_, _ = io.WriteString(c, head)
			status, body, _ := answer(t, c)
			if status != want {
				t.Errorf("a head of %d bytes: %d %s", length, status, body)
			}
			if status != 200 {
				break
			}
		}
	}
}

// However the bytes come, heads are told from bodies, whatever these hold.
func TestHeadsAreTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &headReader{limit: 64}
		var sent []byte
		type want struct {
			head, body   int
			folded, long bool
		}
		var all []want
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			w := want{folded: rapid.Bool().Draw(t, "folded"), long: rapid.Bool().Draw(t, "long")}
			head := "P / HTTP/1.1\r\nA: b\r\n"
			if w.folded {
				head += rapid.SampledFrom([]string{" c\r\n", "\t\n"}).Draw(t, "fold")
			}
			if w.long {
				head += fmt.Sprintf("B: %064d\r\n", 0)
			}
			head += rapid.SampledFrom([]string{"\r\n", "\n"}).Draw(t, "end")
			body := rapid.SampledFrom([]string{"", "a", "\r\n\r\n", "\n \n \n", strings.Repeat(" \r\n", 40)}).
				Draw(t, "body")
			w.head, w.body = len(head), len(body)
			sent, all = append(sent, head+body...), append(all, w)
		}
		b, given := make([]byte, len(sent)), 0
		read := func(most int) {
			n := h.take(b[:most])
			if n == 0 {
				n = copy(b[:rapid.IntRange(1, most).Draw(t, "read")], sent)
				sent = sent[n:]
				n = h.give(b[:n])
			}
			given += n
		}
		for i, w := range all {
			for given < w.head {
				read(len(b))
			}
			if given -= w.head; given != 0 {
				t.Fatalf("request %d: %d bytes too many", i, given)
			}
			if w.body > 0 && rapid.Bool().Draw(t, "early") && i > 0 {
				read(1)
			}
			status, _, _ := h.request(&http.Request{ContentLength: int64(w.body)})
			if wanted := map[bool]int{true: 431, false: map[bool]int{true: 400}[w.folded]}[w.long]; status != wanted {
				t.Fatalf("request %d: %d, want %d", i, status, wanted)
			}
			for given < w.body {
				read(len(b))
			}
			given -= w.body
		}
	})
}
