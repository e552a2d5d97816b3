package edge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// limp is a host of one object that closes the connection after a number of bytes.
type limp struct {
	mu     sync.Mutex
	body   string   // guarded by mu
	most   int      // bytes of an answer before it ends; guarded by mu
	ranges []string // of the requests; guarded by mu
	// lie changes the answer to a range; nil answers as in RFC 9110.
	lie func(w http.ResponseWriter, from int, body string) bool
}

func (l *limp) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func tagOf(body string) string { return `"` + b3.Sum([]byte(body)).String()[3:19] + `"` }

func (l *limp) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	l.mu.Lock()
	l.ranges = append(l.ranges, q.Header.Get("Range"))
	body, most, lie := l.body, l.most, l.lie
	l.mu.Unlock()
	from := firstOf(q.Header)
	if from > 0 && lie != nil && lie(w, from, body) {
		return
	}
	w.Header().Set("ETag", tagOf(body))
	if from > 0 && q.Header.Get("If-Range") == tagOf(body) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)-from))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		from = 0
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	rest := body[from:]
	_, _ = io.WriteString(w, rest[:min(most, len(rest))])
	flush(w)
	if most < len(rest) {
		cut(w)
	}
}

// firstOf returns the first byte of the Range of a request.
func firstOf(h http.Header) int {
	from, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(h.Get("Range"), "bytes="), "-"))
	return from
}

// asked returns the ranges of the requests since the last call.
func (l *limp) asked() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := strings.Join(l.ranges, " ")
	l.ranges = nil
	return out
}

const limpSize = 160_000

var limpBody = strings.Repeat("0123456789abcdef", limpSize/16)

func newLimp(t *testing.T) (*limp, *host) {
	l := &limp{body: limpBody, most: limpSize}
	return l, newHost(t, l.ServeHTTP)
}

// get begins a fill like a GET and waits for its end.
func (r *rig) get(h *host) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t, path, err := asset.ParseURL("https://" + h.name + "/x")
	if err == nil {
		_, err = r.e.Fills().Get(ctx, t, path, r.cfg.Timeout())
	}
	return err
}

// An object that changes between two tries is fetched from its beginning, whether or not the host
// supports If-Range.
func TestChangedInTheMiddle(t *testing.T) {
	t.Parallel()
	part := func(w http.ResponseWriter, from int, body string) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, body[from:])
	}
	for doc, lie := range map[string]func(w http.ResponseWriter, from int, body string) bool{
		"If-Range is understood": nil,
		"If-Range is ignored": func(w http.ResponseWriter, from int, body string) bool {
			w.Header().Set("ETag", tagOf(body))
			part(w, from, body)
			return true
		},
		"a part without an ETag": func(w http.ResponseWriter, from int, body string) bool {
			part(w, from, body)
			return true
		},
		"a part with a weak ETag": func(w http.ResponseWriter, from int, body string) bool {
			w.Header().Set("ETag", "W/"+tagOf(body))
			part(w, from, body)
			return true
		},
		"no such range": func(w http.ResponseWriter, _ int, _ string) bool {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return true
		},
	} {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			l, h := newLimp(t)
			l.most = limpSize / 5
			r := newRig(t, on(h)).start()
			if err := r.get(h); reason(err) != asset.UpstreamTruncated {
				t.Fatal(err)
			}
			l.set(func() { l.body, l.most, l.lie = strings.Repeat("another ", limpSize/8), limpSize, lie })
			if err := r.get(h); err != nil {
				t.Fatal(err)
			}
			r.want(h.name+"/x", l.body)
			r.sound()
		})
	}
}

// A host that answers with another part than the requested one is refused, and no byte is stored.
// The next fill starts over.
func TestContentRangeIsChecked(t *testing.T) {
	t.Parallel()
	says := func(format string, at ...int) func(w http.ResponseWriter, from int, body string) bool {
		return func(w http.ResponseWriter, from int, body string) bool {
			w.Header().Set("ETag", tagOf(body))
			if format != "" {
				numbers := strings.NewReplacer("F", strconv.Itoa(from), "L", strconv.Itoa(len(body)-1),
					"T", strconv.Itoa(len(body)), "G", strconv.Itoa(from-1), "S", strconv.Itoa(len(body)+1))
				w.Header().Set("Content-Range", numbers.Replace(format))
			}
			w.WriteHeader(http.StatusPartialContent)
			flush(w) // sends chunks, so there is no Content-Length
			_, _ = io.WriteString(w, (body + body)[from:][:len(body)-from+append(at, 0)[0]])
			return true
		}
	}
	for doc, tt := range map[string]struct {
		lie  func(w http.ResponseWriter, from int, body string) bool
		want asset.Reason
	}{
		"an earlier part":          {says("bytes G-L/T"), asset.NotCacheable},
		"from the beginning":       {says("bytes 0-L/T"), asset.NotCacheable},
		"a longer whole":           {says("bytes F-T/S"), asset.NotCacheable},
		"an unknown whole":         {says("bytes F-L/*"), asset.NotCacheable},
		"none":                     {says(""), asset.NotCacheable},
		"several":                  {says("bytes F-F/T, bytes L-L/T"), asset.NotCacheable},
		"another unit":             {says("tiles F-L/T"), asset.NotCacheable},
		"a sign":                   {says("bytes +F-L/T"), asset.NotCacheable},
		"more bytes than it says":  {says("bytes F-L/T", 1), asset.NotCacheable},
		"fewer bytes than it says": {says("bytes F-L/T", -1), asset.UpstreamTruncated},
		"private": {func(w http.ResponseWriter, from int, body string) bool {
			w.Header().Set("Cache-Control", "private")
			return says("bytes F-L/T")(w, from, body)
		}, asset.NotCacheable},
	} {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			l, h := newLimp(t)
			l.most = limpSize / 5
			r := newRig(t, on(h)).start()
			if err := r.get(h); reason(err) != asset.UpstreamTruncated {
				t.Fatal(err)
			}
			l.set(func() { l.most, l.lie = limpSize, tt.lie })
			if err := r.get(h); reason(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if has, _ := r.e.Content().Held(); has.Objects != 0 {
				t.Errorf("%d objects", has.Objects)
			}
			l.set(func() { l.lie = nil })
			l.asked()
			if err := r.get(h); err != nil || tt.want == asset.NotCacheable && l.asked() != "" {
				t.Errorf("from the beginning: %v", err)
			}
			r.want(h.name+"/x", l.body)
			r.sound()
		})
	}
}

// A truncated body is kept too. A fill that cannot succeed leaves no partial, and a partial expires
// after two minutes.
func TestPartialsAreDropped(t *testing.T) {
	t.Parallel()
	l, h := newLimp(t)
	l.most = limpSize / 5
	r := newRig(t, on(h)).start()
	kept := func() int {
		files, err := os.ReadDir(filepath.Join(r.dir, "edge", "cas", "tmp"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	if err := r.get(h); reason(err) != asset.UpstreamTruncated || kept() != 1 {
		t.Fatalf("%v, %d kept", err, kept())
	}
	r.clock.Add(int64(2*time.Minute + time.Second))
	until(t, "a partial is dropped", func() bool { return kept() == 0 })
	until(t, "its room is given back", func() bool { _, reserved := r.e.Content().Held(); return reserved == 0 })
	r.noTemps()
	if err := r.get(h); reason(err) != asset.UpstreamTruncated || kept() != 1 {
		t.Fatalf("%v, %d kept", err, kept())
	}
	l.set(func() {
		l.lie = func(w http.ResponseWriter, _ int, _ string) bool { w.WriteHeader(http.StatusNotFound); return true }
	})
	if err := r.get(h); reason(err) != asset.UpstreamNotFound || kept() != 0 {
		t.Errorf("the object is gone: %v, %d kept", err, kept())
	}
	r.noTemps()
}

// Partials are dropped when a fill needs their room.
func TestPartialsGiveWay(t *testing.T) {
	t.Parallel()
	l, h := newLimp(t)
	l.most = limpSize / 5
	r := newRig(t,
		on(h, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = limpSize+20_000, limpSize+20_000 })).start()
	if err := r.get(h); reason(err) != asset.UpstreamTruncated {
		t.Fatal(err)
	}
	l.set(func() { l.most = limpSize })
	if _, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + "/y"}); err != nil {
		t.Errorf("a fill that needs the room: %v", err)
	}
	r.want(h.name+"/y", l.body)
	r.noTemps()
	r.sound()
}

// If a host answers a range with a smaller slice, the whole object is fetched.
func TestHostThatServesSlices(t *testing.T) {
	l, h := newLimp(t)
	l.most = limpSize / 5
	r := newRig(t, on(h)).start()
	if err := r.get(h); reason(err) != asset.UpstreamTruncated {
		t.Fatal(err)
	}
	slice := func(w http.ResponseWriter, from int, body string) bool {
		w.Header().Set("ETag", tagOf(body))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from, len(body)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, body[from:from+1])
		return true
	}
	l.set(func() { l.most, l.lie = limpSize, slice })
	if err := r.get(h); err != nil {
		t.Fatal(err)
	}
	r.want(h.name+"/x", l.body)
	r.sound()
}
