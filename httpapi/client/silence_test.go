package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowly answers with the lines, each after a pause, and is silent then until the request is given
// up.
type slowly struct {
	lines []string
	pause time.Duration
	mute  bool // not even headers are sent
}

func (s slowly) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.mute {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{},
		Body:       io.NopCloser(&slowBody{s, req.Context()}),
	}, nil
}

type slowBody struct {
	slowly
	ctx context.Context
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.lines) == 0 {
		<-b.ctx.Done()
		return 0, context.Cause(b.ctx)
	}
	if err := Sleep(b.ctx, b.pause); err != nil {
		return 0, err
	}
	n := copy(p, b.lines[0])
	b.lines = b.lines[1:]
	return n, nil
}

// An export that is silent for three ping intervals ends with ErrUnknown. One with pings does not,
// and the handling of a line may take any time.
func TestSilentExportIsGivenUp(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		node slowly
		work time.Duration // of each line
		got  int
		took time.Duration
	}{
		{"a node that does not answer", slowly{mute: true}, 0, 0, DefaultIdle},
		{"silence from the first", slowly{}, 0, 0, DefaultIdle},
		{"silence after a line", slowly{lines: []string{"{}\n"}, pause: time.Second}, 0, 1, DefaultIdle + time.Second},
		{"pings", slowly{lines: strings.SplitAfter(strings.Repeat("\n", 20)+"{}\n\n{}\n", "\n")[:23], pause: 15 * time.Second}, 0, 2, 23*15*time.Second + DefaultIdle},
		{"a slow reader", slowly{lines: []string{"{}\n", "{}\n"}, pause: 40 * time.Second}, time.Hour, 2, 80*time.Second + 2*time.Hour + DefaultIdle},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, bad := New(Options{URL: socketHost, Transport: tt.node})
			if bad != nil {
				t.Fatal(bad)
			}
			n, from := 0, time.Now()
			err := c.Export(t.Context(), Call{Path: "/export"}, func(line []byte) error {
				if n++; len(line) == 0 {
					t.Errorf("%s: an empty line is told", tt.doc)
				}
				time.Sleep(tt.work) // of the bubble
				return nil
			})
			if took := time.Since(from); n != tt.got || took != tt.took {
				t.Errorf("%s: %d lines in %s, want %d in %s", tt.doc, n, took, tt.got, tt.took)
			}
			if !errors.Is(err, ErrUnknown) || !Retryable(err) || !strings.Contains(err.Error(), "45s") {
				t.Errorf("%s: %v", tt.doc, err)
			}
		})
	}
}
