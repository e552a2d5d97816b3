package edge

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/engines/edge/pack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const someTag = `"b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"`

// patterned is content in which every byte depends on its offset.
type patterned struct{}

// newPatterned returns a reader of patterned content of any size.
func newPatterned(size int64) *io.SectionReader { return io.NewSectionReader(patterned{}, 0, size) }

func patternAt(off int64) byte { return byte(off*31 + off>>8 + off>>16 + off>>33) }

func (patterned) ReadAt(b []byte, at int64) (int, error) {
	n := min(len(b), 512) // few, so that no test generates more than it reads
	for i := range n {
		b[i] = patternAt(at + int64(i))
	}
	return n, nil
}

// kept is an answer that keeps only its first bytes.
type kept struct {
	h      http.Header
	status int
	body   []byte
	most   int
}

var errEnough = errors.New("enough")

func newKept(most int) *kept                        { return &kept{h: http.Header{}, most: most} }
func (k *kept) Header() http.Header                 { return k.h }
func (k *kept) Set(name, value string)              { k.h.Set(name, value) }
func (k *kept) WriteHeader(status int)              { k.status = status }
func (k *kept) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{k}, r) }

func (k *kept) Write(b []byte) (int, error) {
	if k.status == 0 {
		k.status = http.StatusOK
	}
	n := min(len(b), k.most-len(k.body))
	k.body = append(k.body, b[:n]...)
	if n < len(b) {
		return n, errEnough
	}
	return n, nil
}

// both answers one request with http.ServeContent and with send.
func both(method string, h http.Header, size int64, most int) (theirs, ours *kept) {
	r := &http.Request{Method: method, Header: h}
	theirs = newKept(most)
	theirs.h.Set("Etag", someTag)
	theirs.h.Set("Content-Type", "text/plain")
	http.ServeContent(theirs, r, "", time.Time{}, newPatterned(size))
	ours = newKept(most)
	switch err := send(ours, r, payload{etag: someTag, kind: "text/plain", file: newPatterned(size), size: size}); {
	case errors.Is(err, errRange):
		ours.status = http.StatusRequestedRangeNotSatisfiable
	case errors.Is(err, errPrecondition):
		ours.status = http.StatusPreconditionFailed
	case err != nil:
		panic(err)
	}
	return theirs, ours
}

// same compares two answers as a client sees them. The body of a refusal is a problem and has
// another length.
func same(theirs, ours *kept) error {
	names := []string{"Content-Range"}
	if theirs.status < http.StatusBadRequest {
		names = []string{"Content-Range", "Content-Length", "Etag", "Accept-Ranges"}
	}
	if theirs.status == http.StatusNotModified {
		names = []string{"Etag"}
	}
	for _, name := range names {
		if theirs.h.Get(name) != ours.h.Get(name) {
			return fmt.Errorf("%s is %q, http.ServeContent says %q", name, ours.h.Get(name), theirs.h.Get(name))
		}
	}
	switch {
	case theirs.status != ours.status:
		return fmt.Errorf("status %d, http.ServeContent says %d", ours.status, theirs.status)
	case theirs.status < http.StatusBadRequest && !bytes.Equal(theirs.body, ours.body):
		return fmt.Errorf("another body of %d bytes, http.ServeContent sends %d", len(ours.body), len(theirs.body))
	}
	return nil
}

// sizes are the content sizes for the tests of ranges.
var sizes = []int64{0, 1, 2, 511, 64 << 10, 1 << 40}

// anyRange draws a single range in any spelling that RFC 9110 allows.
func anyRange(r *rand.Rand, size int64) string {
	number := func() int64 {
		switch r.IntN(6) {
		case 0:
			return max(0, size-2+r.Int64N(5))
		case 1:
			return r.Int64N(5)
		case 2:
			return r.Int64()
		case 3:
			return 1<<63 - 1 - r.Int64N(3)
		}
		return r.Int64N(size + 3)
	}
	text := func(n int64) string { return strings.Repeat("0", r.IntN(3)*r.IntN(2)) + fmt.Sprint(n) }
	a, b := number(), number()
	spec := text(min(a, b)) + "-" + text(max(a, b))
	switch r.IntN(3) {
	case 0:
		spec = text(a) + "-"
	case 1:
		spec = "-" + text(a)
	}
	space := func() string { return strings.Repeat([]string{" ", "\t"}[r.IntN(2)], r.IntN(2)*r.IntN(3)) }
	return "bytes=" + strings.Repeat(",", r.IntN(2)*r.IntN(2)) + space() + spec + space() + strings.Repeat(",",
		r.IntN(2)*r.IntN(2))
}

// emptySuffix reports whether a range asks for the last 0 bytes.
func emptySuffix(header string) bool {
	_, list, _ := strings.Cut(header, "=")
	digits, suffix := strings.CutPrefix(strings.Trim(list, " \t,"), "-")
	return suffix && strings.Trim(digits, "0") == ""
}

var ranges = flag.Int("ranges", 10_000,
	"how many ranges TestRangesAreThoseOfServeContent draws; make check has it draw 100,000")

// For each range and each size, send answers as http.ServeContent does, except for suffixes of an
// empty object and suffixes of no bytes.
func TestRangesAreThoseOfServeContent(t *testing.T) {
	draws := *ranges
	if testing.Short() {
		draws = 3_000
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	partial := 0
	for i := range draws {
		most := 512
		if i%1000 == 0 {
			most = 1 << 20
		}
		for _, size := range sizes {
			header := anyRange(r, size)
			theirs, ours := both(http.MethodGet, http.Header{"Range": {header}}, size, most)
			_, list, _ := strings.Cut(header, "=")
			suffix := strings.HasPrefix(strings.Trim(list, " \t,"), "-")
			switch {
			case size == 0 && suffix:
				if ours.status != http.StatusOK || ours.h.Get("Content-Length") != "0" {
					t.Fatalf("seed %d: %q of nothing: %d", seed, header, ours.status)
				}
			case emptySuffix(header):
				if ours.status != http.StatusRequestedRangeNotSatisfiable {
					t.Fatalf("seed %d: %q of %d bytes: %d", seed, header, size, ours.status)
				}
			default:
				if err := same(theirs, ours); err != nil {
					t.Fatalf("seed %d: %q of %d bytes: %v", seed, header, size, err)
				}
			}
			if ours.status == http.StatusPartialContent {
				partial++
			}
		}
	}
	if partial < draws {
		t.Errorf("only %d of %d answers were partial", partial, draws*len(sizes))
	}
}

// These are the differences from http.ServeContent, one per row.
func TestDifferencesFromServeContent(t *testing.T) {
	const size = 511
	for _, tt := range []struct {
		doc, method, header string
		size                int64
		status              int
		contentRange        string
	}{
		{"the unit in other letters", "GET", "Bytes=0-4", size, 206, "bytes 0-4/511"},
		{"another unit", "GET", "tiles=0-4", size, 200, ""},
		{"no unit at all", "GET", "0-4", size, 200, ""},
		{"the last no bytes", "GET", "bytes=-0", size, 416, "bytes */511"},
		{"a sign", "GET", "bytes=+1-4", size, 416, "bytes */511"},
		{"spaces inside", "GET", "bytes=1 - 4", size, 416, "bytes */511"},
		{"20 digits", "GET", "bytes=1-99999999999999999999", size, 206, "bytes 1-510/511"},
		{"20 digits of a suffix", "GET", "bytes=-99999999999999999999", size, 206, "bytes 0-510/511"},
		{"HEAD", "HEAD", "bytes=0-4", size, 200, ""},
		{"no range", "GET", "bytes=", size, 416, "bytes */511"},
		{"commas", "GET", "bytes=,", size, 416, "bytes */511"},
		{"several ranges", "GET", "bytes=0-1,3-4", size, 200, ""},
		{"one satisfiable range of several", "GET", "bytes=600-,0-1", size, 200, ""},
		{"one malformed range of several", "GET", "bytes=0-1,3-2", size, 416, "bytes */511"},
		{"one malformed range of several, first", "GET", "bytes=x,3-4", size, 416, "bytes */511"},
		{"the end of nothing", "GET", "bytes=-5", 0, 200, ""},
		{"backwards, of nothing", "GET", "bytes=5-2", 0, 416, "bytes */0"},
	} {
		theirs, ours := both(tt.method, http.Header{"Range": {tt.header}}, tt.size, 1<<20)
		if ours.status != tt.status || ours.h.Get("Content-Range") != tt.contentRange {
			t.Errorf("%s: %d %q, want %d %q", tt.doc, ours.status, ours.h.Get("Content-Range"), tt.status,
				tt.contentRange)
		}
		if same(theirs, ours) == nil {
			t.Errorf("%s: is no difference", tt.doc)
		}
	}
	_, ours := both("GET", http.Header{"Range": {"bytes=0-4", "bytes=0-4"}}, size, 1<<20)
	if ours.status != http.StatusRequestedRangeNotSatisfiable || ours.h.Get("Etag") != someTag {
		t.Errorf("two lines: %d, tag %q", ours.status, ours.h.Get("Etag"))
	}
}

// anyTags draws the value of a header of tags.
func anyTags(r *rand.Rand) string {
	all := []string{someTag, "W/" + someTag, `"x"`, `W/"x"`, `"a,b"`, "*", `"`, "x", "", " "}
	var out []string
	for range 1 + r.IntN(4) {
		out = append(out, all[r.IntN(len(all))])
	}
	return strings.Join(out, []string{",", ", "}[r.IntN(2)])
}

// Well-formed conditions, in any combination and with a range, are decided as by http.ServeContent.
func TestConditionsAreThoseOfServeContent(t *testing.T) {
	draws := 100_000
	if testing.Short() {
		draws = 5_000
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	wellFormed := []string{
		someTag, "W/" + someTag, `"x"`, `W/"x"`, `"a,b"`, `"x", ` + someTag, `W/"x",W/` + someTag, "*",
	}
	seen := map[int]int{}
	for range draws {
		h := http.Header{}
		for _, name := range []string{
			"If-Match", "If-None-Match", "If-Range", "If-Modified-Since", "If-Unmodified-Since",
		} {
			if r.IntN(3) > 0 {
				continue
			}
			v := wellFormed[r.IntN(len(wellFormed))]
			if name == "If-Range" && r.IntN(2) == 0 {
				v = wellFormed[r.IntN(4)]
			}
			if strings.HasSuffix(name, "Since") {
				v = "Mon, 02 Jan 2006 15:04:05 GMT"
			}
			h.Set(name, v)
		}
		if r.IntN(2) == 0 {
			h.Set("Range", "bytes=2-5")
		}
		theirs, ours := both(http.MethodGet, h, 511, 1<<20)
		if err := same(theirs, ours); err != nil {
			t.Fatalf("seed %d: %v: %v", seed, h, err)
		}
		seen[ours.status]++
	}
	for _, status := range []int{200, 206, 304, 412} {
		if seen[status] < draws/100 {
			t.Errorf("%d was answered %d times of %d", status, seen[status], draws)
		}
	}
}

// Lists of tags that are longer than any that the server sends are ignored.
func TestTooManyTagsAreIgnored(t *testing.T) {
	many := strings.Repeat(`"x",`, 64) + someTag
	long := `"` + strings.Repeat("x", 4<<10) + `",` + someTag
	for _, list := range []string{many, long} {
		for name, h := range map[string]http.Header{
			"If-None-Match": {"If-None-Match": {list}}, "If-Match": {"If-Match": {list}},
		} {
			if _, ours := both("GET", h, 5, 10); ours.status != http.StatusOK {
				t.Errorf("%s of %d bytes: %d", name, len(list), ours.status)
			}
		}
	}
	full := strings.Repeat(`"x",`, 63) + someTag
	if _, ours := both("GET", http.Header{"If-None-Match": {full}}, 5, 10); ours.status != http.StatusNotModified {
		t.Errorf("%d tags: %d", 64, ours.status)
	}
}

// For all values of the headers, the answer has one of five statuses, a part lies within the
// content, and the decision is deterministic.
func FuzzConditions(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		f.Add(anyRange(r, 511), anyTags(r), anyTags(r), anyTags(r), int64(r.IntN(1000)))
	}
	f.Add("bytes=0-0,-1", "", `W/"`, "*", int64(0))
	f.Fuzz(func(t *testing.T, within, match, noneMatch, ifRange string, size int64) {
		if size < 0 {
			size = -(size + 1)
		}
		h := http.Header{}
		for name, v := range map[string]string{
			"Range": within, "If-Match": match, "If-None-Match": noneMatch, "If-Range": ifRange,
		} {
			if v != "" {
				h[name] = []string{v}
			}
		}
		p := decide(http.MethodGet, h, someTag, size)
		switch p.status {
		case http.StatusOK:
			if p.first != 0 || p.length != size {
				t.Fatalf("%v of %d bytes: %+v", h, size, p)
			}
		case http.StatusPartialContent:
			if p.first < 0 || p.length < 1 || p.first > size-p.length {
				t.Fatalf("%v of %d bytes: %+v", h, size, p)
			}
			again := fmt.Sprintf("bytes=%d-%d", p.first, p.first+p.length-1)
			if q := decide(http.MethodGet, http.Header{"Range": {again}}, someTag, size); q != p {
				t.Fatalf("%v of %d bytes: %+v, and %q: %+v", h, size, p, again, q)
			}
		case http.StatusNotModified, http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
			if p.first != 0 || p.length != 0 {
				t.Fatalf("%v of %d bytes: %+v", h, size, p)
			}
		default:
			t.Fatalf("%v of %d bytes: %+v", h, size, p)
		}
	})
}

// A client accepts the codings that it names with a weight above zero.
func TestCodings(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "gzip": "g", "gzip;q=0": "", "gzip; q=0.0": "", "gzip;q=0.001": "g", "GZIP, br": "gb",
		"zstd, gzip;q=0": "z", "*": "gzb",
		"identity": "", "gzip;q=1, zstd; q = 0 , br;q=0.5": "gb", "x-gzip": "g", "gzip;x=y": "g",
	} {
		has := accepts(&http.Request{Header: http.Header{"Accept-Encoding": {header}}})
		got := map[bool]string{true: "g"}[has(pack.Gzip)] + map[bool]string{true: "z"}[has("zstd")] +
			map[bool]string{true: "b"}[has("br")]
		if got != want {
			t.Errorf("%q accepts %q, want %q", header, got, want)
		}
	}
	if has := accepts(&http.Request{}); has(pack.Gzip) || has("zstd") || has("br") {
		t.Error("who says nothing accepts identity alone")
	}
}
