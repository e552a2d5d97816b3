package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/fill"
)

// slowLine takes the place of the client of a host, in virtual time. It makes up to three tries,
// and each sends a number of bytes and then no more.
type slowLine struct {
	body   string
	most   int           // bytes of a try
	pause  time.Duration // before each sixteenth of the bytes
	ranges []string      // of the tries
}

func (l *slowLine) get(_ context.Context, _ string, r upstream.Request, take func(*upstream.Answer) error) (err error) {
	for range 3 {
		r.Trying()
		if err = take(l.answer(r)); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return err
}

func (l *slowLine) answer(r upstream.Request) *upstream.Answer {
	l.ranges = append(l.ranges, r.Header.Get("Range"))
	from := firstOf(r.Header)
	a := &upstream.Answer{
		Status: http.StatusOK,
		Header: http.Header{"Etag": {tagOf(l.body)}},
		Length: int64(len(l.body) - from),
		Body: &slowBody{
			rest: l.body[from:], left: l.most, pause: l.pause, idle: r.Idle, end: time.Now().Add(r.Timeout),
		},
	}
	if from > 0 {
		a.Status = http.StatusPartialContent
		a.Header["Content-Range"] = []string{fmt.Sprintf("bytes %d-%d/%d", from, len(l.body)-1, len(l.body))}
	}
	return a
}

// asked returns the ranges of the tries since the last call.
func (l *slowLine) asked() string {
	out := strings.Join(l.ranges, " ")
	l.ranges = nil
	return out
}

// slowBody is the body of an answer. It ends at the deadline of its try, or after the idle time
// without a byte.
type slowBody struct {
	rest        string
	left        int // bytes until the line is silent
	pause, idle time.Duration
	end         time.Time
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.rest == "" {
		return 0, io.EOF
	}
	patience := time.Until(b.end)
	if b.idle > 0 {
		patience = min(patience, b.idle)
	}
	if b.left == 0 || b.pause >= patience {
		time.Sleep(patience)
		return 0, context.DeadlineExceeded
	}
	time.Sleep(b.pause)
	n := copy(p[:min(len(p), limpSize/16, b.left)], b.rest)
	b.rest, b.left = b.rest[n:], b.left-n
	return n, nil
}

// On a line that is too slow for one try or one fill, every try resumes the previous one.
func TestSlowLineArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLine{body: limpBody, most: limpSize / 5}
		r := newRig(t, live)
		*r.e.Get() = l.get
		r.start()
		h := &host{name: "example.com"}
		if err := r.get(h); reason(err) != asset.Timeout {
			t.Fatalf("three tries of a fifth each: %v", err)
		}
		if got, want := l.asked(), " bytes=32000- bytes=64000-"; got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
		if _, reserved := r.e.Content().Held(); reserved != 96_000 {
			t.Errorf("%d bytes are reserved between two fills", reserved)
		}
		if err := r.get(h); err != nil {
			t.Fatal(err)
		}
		if got, want := l.asked(), "bytes=96000- bytes=128000-"; got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
		r.want("example.com/x", l.body)
		r.sound()
		r.stop()
	})
}

// A try that a POST began lasts while bytes come, and ends after edge.fill.idle without a byte. The
// next try resumes it.
func TestPostLastsWhileBytesCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLine{body: limpBody, most: limpSize, pause: 1900 * time.Millisecond}
		r := newRig(t, live, func(r *rig) {
			r.cfg.Ingress.TimeoutSecs, r.cfg.Fill.Idle = 1, unit.Duration(2*time.Second)
		})
		*r.e.Get() = l.get
		r.start()
		const url = "https://example.com/x"
		if _, err := r.e.Fill(t.Context(), fill.Request{URL: url}); err != nil || l.asked() != "" {
			t.Fatalf("30 s of bytes: %v", err)
		}
		r.want("example.com/x", l.body)
		l.body, l.most, l.pause = "anew "+l.body, limpSize/2, 0
		f, err := r.e.Fill(t.Context(), fill.Request{URL: url, Refresh: true})
		if err != nil || !f.New || l.asked() != " bytes=80000- bytes=160000-" {
			t.Errorf("a line that stalls: %+v, %v", f, err)
		}
		r.want("example.com/x", l.body)
		r.sound()
		r.stop()
	})
}
