package node_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"pgregory.net/rapid"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// flaky is a node with a chain that grows during the stream, over connections that break anywhere.
type flaky struct {
	luck *rand.Rand
	left int    // remaining random draws; after them no connection breaks
	last uint64 // last row of the chain
	most uint64 // final number of rows
}

// draw returns a random number from 0 to most, or most after the last random draw.
func (n *flaky) draw(most int) int {
	if n.left--; n.left < 0 {
		return most
	}
	return n.luck.IntN(most + 1)
}

func (n *flaky) grow() { n.last = min(n.most, n.last+uint64(n.draw(4))) }

// RoundTrip answers like a node.
func (n *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.draw(5) == 0 {
		return n.answer(http.StatusTooManyRequests, wire.ProblemType, `{"reason":"busy","retryable":true}`), nil
	}
	if r.URL.Path == "/admin/v1/audit" {
		return n.answer(http.StatusOK, "application/json", n.page(r.URL.Query().Get("from"))), nil
	}
	return n.answer(http.StatusOK, "text/event-stream", n.stream(r.Header.Get("Last-Event-ID"))), nil
}

func (n *flaky) answer(status int, typ, body string) *http.Response {
	var sent io.Reader = strings.NewReader(body)
	if n.draw(2) == 0 {
		broken := iotest.ErrReader(io.ErrUnexpectedEOF)
		sent = io.MultiReader(strings.NewReader(body[:n.draw(len(body))]), broken)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {typ}}, Body: io.NopCloser(sent)}
}

func (n *flaky) page(text string) string {
	from, _ := strconv.ParseUint(text, 10, 64)
	rows := []string{}
	for seq := from; seq <= n.last && len(rows) < 3; seq++ {
		rows = append(rows, fmt.Sprintf(`{"seq":%d}`, seq))
	}
	return fmt.Sprintf(`{"rows":[%s],"first":1,"last":%d}`, strings.Join(rows, ","), n.last)
}

// stream replays the missing rows or sends lagged. Then the chain grows.
func (n *flaky) stream(lastID string) string {
	sent, _ := strconv.ParseUint(lastID, 10, 64)
	b := fmt.Sprintf("retry: 1\n\nevent: hello\ndata: {\"incarnation\":\"i\",\"last\":%d}\n\n", n.last)
	for range 3 {
		if n.last > sent && n.draw(2) == 0 {
			b += fmt.Sprintf("id: %d\nevent: lagged\ndata: {\"missed\":%d,\"from\":%d,\"to\":%d,\"last\":%d}\n\n",
				n.last, n.last-sent, sent+1, n.last, n.last)
			sent = n.last
		}
		for sent < n.last {
			sent++
			b += fmt.Sprintf("id: %d\nevent: audit\ndata: {\"seq\":%d}\n\n: ping\n\n", sent, sent)
		}
		n.grow()
	}
	return b
}

// Every row is delivered once and in order, wherever connections break and whatever the node skips
// or refuses.
func TestEveryRowOnceWhateverBreaks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := &flaky{
			most: 30,
			left: rapid.IntRange(0, 200).Draw(rt, "left"),
			luck: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)),
		}
		base, err := client.New(client.Options{URL: "http://node", Transport: n})
		if err != nil {
			rt.Fatal(err)
		}
		c := nodeapi.NewClient(base)
		var told, want []uint64
		synctest.Test(t, func(t *testing.T) { // the pauses between connections take no time
			err = errors.New("not begun")
			for err != nil && len(told) == 0 { // only the first connection is not retried
				err = c.AuditStream(
					t.Context(),
					client.StreamOptions{LastEventID: "0"},
					func(row nodeapi.AuditRow) error {
						if told = append(told, row.Seq); row.Seq == n.most {
							return client.ErrStop
						}
						return nil
					},
				)
			}
		})
		for seq := range n.most {
			want = append(want, seq+1)
		}
		if err != nil || !slices.Equal(told, want) {
			rt.Fatalf("told %d: %v", told, err)
		}
	})
}
