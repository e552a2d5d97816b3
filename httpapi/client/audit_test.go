package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// chain serves an audit chain of rows first..last. Its n-th stream connection gets the n-th body.
type chain struct {
	first, last uint64
	streams     []string
	asked       []string
	refuse      int // the page to refuse, from 1
	pages       int
}

func (a *chain) serve(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/admin/v1/audit/stream" {
		a.asked = append(a.asked, r.Header.Get("Last-Event-ID"))
		if len(a.asked) > len(a.streams) {
			problem(rw, http.StatusNotFound, `{"reason":"not_found"}`)
			return
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "retry: 1\n\n"+a.streams[len(a.asked)-1])
		return
	}
	if a.pages++; a.pages == a.refuse {
		problem(rw, http.StatusTooManyRequests, `{"reason":"busy","retryable":true}`)
		return
	}
	a.page(rw, r)
}

// page answers with two rows at most.
func (a *chain) page(rw http.ResponseWriter, r *http.Request) {
	var from uint64
	_, _ = fmt.Sscan(r.URL.Query().Get("from"), &from)
	var rows []string
	next := ""
	for seq := max(from, a.first); seq <= a.last; seq++ {
		if len(rows) == 2 {
			next = fmt.Sprintf(`,"next":%d`, seq)
			break
		}
		rows = append(rows, fmt.Sprintf(`{"seq":%d}`, seq))
	}
	_, _ = fmt.Fprintf(rw, `{"rows":[%s],"first":%d,"last":%d%s}`, strings.Join(rows, ","), a.first, a.last, next)
}

func row(seq int) string {
	return fmt.Sprintf("id: %d\nevent: audit\ndata: {\"seq\":%d}\n\n", seq, seq)
}

// lagged is a lagged frame of the node, which omits an id of 0.
func lagged(from, to int) string {
	id := ""
	if to > 0 {
		id = fmt.Sprintf("id: %d\n", to)
	}
	return id + fmt.Sprintf("event: lagged\ndata: {\"missed\":%d,\"from\":%d,\"to\":%d,\"last\":%d}\n\n",
		max(to-from+1, 0), from, to, to)
}

func TestAuditStreamTellsEveryRowOnce(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		chain chain
		want  []uint64
		asked []string
	}{
		{"rows as they come", chain{first: 1, last: 5, streams: []string{row(4) + row(5)}}, []uint64{4, 5}, []string{"3", "5"}},
		{"over a break", chain{first: 1, last: 5, streams: []string{row(4), row(4) + row(5)}}, []uint64{4, 5}, []string{"3", "4", "5"}},
		{"a gap is read from the chain", chain{first: 1, last: 9, streams: []string{lagged(4, 8) + row(9)}}, []uint64{4, 5, 6, 7, 8, 9}, []string{"3", "9"}},
		{"what the ring let go is a gap", chain{first: 7, last: 9, streams: []string{lagged(4, 8) + row(9)}}, []uint64{7, 8, 9}, []string{"3", "9"}},
		{"a gap that cannot be read now is read later", chain{first: 1, last: 6, streams: []string{row(4) + lagged(5, 6), lagged(5, 6)}, refuse: 1}, []uint64{4, 5, 6}, []string{"3", "4", "6"}},
		{"a gap read in part is not told again", chain{first: 1, last: 8, streams: []string{row(4) + lagged(5, 8), row(5) + row(6) + row(7) + row(8)}, refuse: 2},
			[]uint64{4, 5, 6, 7, 8}, []string{"3", "4", "8"}},
		{"a chain begun anew leads back", chain{first: 1, last: 2, streams: []string{row(4) + lagged(5, 0) + row(1), row(2)}}, []uint64{4, 1, 2}, []string{"3", "1", "2"}},
		{"a chain begun anew, and a break", chain{first: 1, last: 2, streams: []string{row(4) + lagged(5, 0), row(1)}}, []uint64{4, 1}, []string{"3", "0", "1"}},
		{"a restored chain leads back", chain{first: 1, last: 2, streams: []string{row(4) + lagged(5, 1) + row(2)}}, []uint64{4, 2}, []string{"3", "2"}},
		{"what grew meanwhile is not told twice", chain{first: 1, last: 9, streams: []string{lagged(4, 6) + row(7)}}, []uint64{4, 5, 6, 7}, []string{"3", "7"}},
	} {
		c := serve(t, tt.chain.serve, client.Options{})
		var got []uint64
		err := c.AuditStream(t.Context(), client.StreamOptions{LastEventID: "3"}, func(r nodeapi.AuditRow) error {
			got = append(got, r.Seq)
			return nil
		})
		if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Reason != "not_found" {
			t.Errorf("%s: err = %v", tt.doc, err)
		}
		if !slices.Equal(got, tt.want) || !slices.Equal(tt.chain.asked, tt.asked) {
			t.Errorf("%s: rows %v, want %v; resumed after %q, want %q", tt.doc, got, tt.want, tt.chain.asked, tt.asked)
		}
	}
}

// A stream of new rows that breaks before the first one reads the missed rows.
func TestAuditStreamThatBreaksAtOnceMissesNothing(t *testing.T) {
	a := chain{first: 1, last: 9, streams: []string{"event: hello\ndata: {\"last\":7}\n\n", row(8)}}
	err := serve(t, a.serve,
		client.Options{}).AuditStream(t.Context(), client.StreamOptions{}, func(nodeapi.AuditRow) error { return nil })
	if want := []string{"", "7", "8"}; err == nil || !slices.Equal(a.asked, want) {
		t.Errorf("resumed after %q, want %q: %v", a.asked, want, err)
	}
}

func TestAuditStreamEnds(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		doc, stream string
		err, want   error
	}{
		{"when asked to", row(4), client.ErrStop, nil},
		{"when asked to in a gap", lagged(4, 5), client.ErrStop, nil},
		{"with the caller's error", lagged(4, 5), boom, boom},
		{"at a row that is none", "id: 4\nevent: audit\ndata: []\n\n", nil, client.ErrFrame},
		{"at a gap that is none", "event: lagged\ndata: []\n\n", nil, client.ErrFrame},
	} {
		a := chain{first: 1, last: 5, streams: []string{tt.stream}}
		err := serve(
			t,
			a.serve,
			client.Options{},
		).AuditStream(t.Context(), client.StreamOptions{}, func(nodeapi.AuditRow) error { return tt.err })
		if !errors.Is(err, tt.want) || len(a.asked) != 1 {
			t.Errorf("%s: err = %v after %d connections, want %v", tt.doc, err, len(a.asked), tt.want)
		}
	}
}
