package client_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"ronbox/httpapi/client"
)

func frames(r io.Reader) (out []client.Frame, err error) {
	f := client.NewFrameReader(r)
	for {
		fr, err := f.Next()
		if err != nil {
			return out, err
		}
		out = append(out, fr)
	}
}

func TestFramesAsTheStandardDispatchesThem(t *testing.T) {
	for _, tt := range []struct{ doc, in, want string }{
		{"data alone", "data: a\n\n", "message||a;"},
		{"lines join", "data: a\ndata: b\ndata\n\n", "message||a\nb\n;"},
		{"event and id", "id: 7\nevent: x\ndata: a\n\n", "x|7|a;"},
		{"the id stays", "id: 7\ndata: a\n\ndata: b\n\n", "message|7|a;message|7|b;"},
		{"an id alone is kept", "id: 7\n\ndata: b\n\n", "message|7|b;"},
		{"an empty id clears", "id: 7\ndata: a\n\nid\ndata: b\n\n", "message|7|a;message||b;"},
		{"an id with NUL is ignored", "id: 1\nid: 7\x00\ndata: a\n\n", "message|1|a;"},
		{"an event without data is dropped", "event: x\n\ndata: a\n\n", "message||a;"},
		{"comments and strangers", ": ping\nfoo: bar\ndata: a\n\n", "message||a;"},
		{"one space is taken off", "data:  a\n\ndata:b\n\n", "message|| a;message||b;"},
		{"CR and CRLF", "data: a\r\rdata: b\r\n\r\n", "message||a;message||b;"},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", "message||a;"},
		{"a frame cut short", "data: a\n\ndata: b\n", "message||a;"},
		{"empty data", "data\n\n", "message||;"},
	} {
		for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
			got := ""
			fs, err := frames(r)
			for _, f := range fs {
				got += f.Event + "|" + f.ID + "|" + string(f.Data) + ";"
			}
			if got != tt.want || !errors.Is(err, io.EOF) {
				t.Errorf("%s: %q, %v, want %q", tt.doc, got, err, tt.want)
			}
		}
	}
}

func TestRetryIsKept(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want time.Duration
	}{{"retry: 3000", 3 * time.Second}, {"retry: +3", 0}, {"retry: 3s", 0}, {"retry:", 0}, {"retry: 99999999999", 0}} {
		f := client.NewFrameReader(strings.NewReader(tt.in + "\n\n"))
		if _, err := f.Next(); !errors.Is(err, io.EOF) || f.Retry() != tt.want {
			t.Errorf("%q: retry %v, %v, want %v", tt.in, f.Retry(), err, tt.want)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 3<<20) // as the largest row of an audit chain, escaped
	if got, err := frames(strings.NewReader("data: " + long + "\n\n")); len(got) != 1 || string(got[0].Data) != long {
		t.Errorf("%d frames, %v", len(got), err)
	}
	for _, in := range []string{"data: " + strings.Repeat("x", 5<<20) + "\n\n", strings.Repeat("data: "+long+"\n", 2) + "\n"} {
		if _, err := frames(strings.NewReader(in)); !errors.Is(err, client.ErrFrame) {
			t.Errorf("err = %v, want ErrFrame", err)
		}
	}
}

// What was written as frames is read as frames, however the bytes are cut.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~]{0,40}`)
		var in bytes.Buffer
		var want []string
		for range rapid.IntRange(0, 8).Draw(t, "frames") {
			data := rapid.SliceOfN(text, 1, 4).Draw(t, "data")
			for _, d := range data {
				in.WriteString("data: " + d + rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end"))
			}
			in.WriteString(": ping\n\n")
			want = append(want, strings.Join(data, "\n"))
		}
		got := []string(nil)
		fs, _ := frames(iotest.HalfReader(&in))
		for _, f := range fs {
			got = append(got, string(f.Data))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
	})
}

// No input makes the reader panic, hang or grow beyond its bounds, and how the bytes are cut
// changes nothing.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{"", "data: a\n\n", "id: 1\r\nevent: x\rdata: {}\n\n", "\xef\xbb\xbf:\n\nretry: 5\n", "data\ndata\n\nid\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, errWhole := frames(bytes.NewReader(in))
		parts, errParts := frames(iotest.OneByteReader(bytes.NewReader(in)))
		if len(whole) != len(parts) || (errWhole == nil) || (errParts == nil) {
			t.Fatalf("%d frames (%v) whole, %d (%v) in parts", len(whole), errWhole, len(parts), errParts)
		}
		for i, w := range whole {
			if w.Event == "" || w.ID != parts[i].ID || !bytes.Equal(w.Data, parts[i].Data) ||
				strings.ContainsRune(w.ID, 0) {
				t.Fatalf("frame %d: %+v whole, %+v in parts", i, w, parts[i])
			}
		}
	})
}
