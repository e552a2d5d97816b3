package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi"
)

// payload is the content of an answer: bytes in memory, or a file.
type payload struct {
	etag   string // strong, quoted
	kind   string // Content-Type
	cache  string // Cache-Control
	coding string // Content-Encoding; "" for none
	bytes  []byte
	file   *io.SectionReader // used if bytes is nil; the kernel can send a file
	size   int64
	whole  bool // no ranges are served
	status int  // of a body that stands in for what is missing, without conditions and ranges; 0: by the request
}

// answer is the part of httpapi.Request through which content is sent.
type answer interface {
	Set(name, value string)
	WriteHeader(status int)
	io.Writer
	io.ReaderFrom
}

// smallPart is the length up to which a part of a file is read into memory and written together
// with its head. The kernel sends a longer part, which costs another call but copies nothing.
const smallPart = 16 << 10

// errShort is returned if a file ends before its size. The connection is then closed.
var errShort = errors.New("the file ends before its size")

// send answers r with the requested part of x.
func send(w answer, r *http.Request, x payload) error {
	method, unit := r.Method, "bytes"
	if x.whole {
		method, unit = http.MethodHead, "none" // decide ignores ranges of a HEAD
	}
	p := part{x.status, 0, x.size}
	if x.status == 0 {
		p = decide(method, r.Header, x.etag, x.size)
		w.Set("Etag", x.etag)
		w.Set("Accept-Ranges", unit)
	}
	switch p.status {
	case http.StatusPreconditionFailed:
		return errPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		w.Set("Content-Range", p.contentRange(x.size))
		return errRange
	}
	w.Set("Cache-Control", x.cache)
	if p.status == http.StatusNotModified {
		w.WriteHeader(p.status)
		return nil
	}
	w.Set("Content-Type", x.kind)
	w.Set("Content-Length", strconv.FormatInt(p.length, 10))
	if x.coding != "" {
		w.Set("Content-Encoding", x.coding)
	}
	if p.status == http.StatusPartialContent {
		w.Set("Content-Range", p.contentRange(x.size))
	}
	if r.Method == http.MethodHead || p.length == 0 {
		w.WriteHeader(p.status)
		return nil
	}
	return x.write(w, p)
}

// write sends the bytes of p. It returns no error if the client has left.
func (x *payload) write(w answer, p part) error {
	if x.file == nil {
		w.WriteHeader(p.status)
		_, _ = w.Write(x.bytes[p.first : p.first+p.length]) // an error means that the client has left
		return nil
	}
	if p.first > 0 {
		if _, err := x.file.Seek(p.first, io.SeekStart); err != nil {
			return err
		}
	}
	w.WriteHeader(p.status)
	var n int64
	var err error
	if src := (&io.LimitedReader{R: x.file, N: p.length}); p.length <= smallPart {
		n, err = io.Copy(struct{ io.Writer }{w}, src)
	} else {
		n, err = w.ReadFrom(src)
	}
	if err == nil && n < p.length {
		return errShort
	}
	return nil
}

// accepts returns a function that reports whether a request accepts a coding. Without an
// Accept-Encoding only identity is accepted, because many scripts do not decode.
func accepts(r *http.Request) func(pack.Coding) bool {
	return func(c pack.Coding) bool { return httpapi.Weight(r.Header["Accept-Encoding"], string(c)) > 0 }
}

// part is the requested part of some content: a status of 200, 206, 304, 412 or 416, and the range
// of bytes for 200 and 206.
type part struct {
	status        int
	first, length int64
}

// decide evaluates the conditions of a request in the order of RFC 9110, section 13.2.2, for
// content with a strong tag and a size. Content has no modification date: conditions by date are
// ignored, and a date in If-Range never matches. Ranges of a HEAD are ignored.
func decide(method string, h http.Header, etag string, size int64) part {
	if has, given := httpapi.Matches(h["If-Match"], etag, false); given && !has {
		return part{status: http.StatusPreconditionFailed}
	}
	if has, _ := httpapi.Matches(h["If-None-Match"], etag, true); has {
		return part{status: http.StatusNotModified}
	}
	whole := part{http.StatusOK, 0, size}
	lines, within := h["Range"], h["If-Range"]
	if method != http.MethodGet || len(lines) == 0 || len(within) > 0 && (len(within) > 1 || within[0] != etag) {
		return whole
	}
	if len(lines) > 1 {
		return part{status: http.StatusRequestedRangeNotSatisfiable}
	}
	return ranged(lines[0], whole)
}

// ranged returns the part for a Range header, given the whole. It ignores a range in another unit
// and a range of empty content. It refuses malformed ranges, because a client would misread an
// answer to a misunderstood request, and answers several ranges with the whole if any of them is
// satisfiable, as RFC 9110, section 14.2, permits.
func ranged(header string, whole part) part {
	refused := part{status: http.StatusRequestedRangeNotSatisfiable}
	unit, list, _ := strings.Cut(header, "=")
	if !strings.EqualFold(unit, "bytes") {
		return whole
	}
	out, count := refused, 0
	for spec := range strings.SplitSeq(list, ",") {
		if spec = strings.Trim(spec, " \t"); spec == "" {
			continue
		}
		p, valid := rangeOf(spec, whole)
		if !valid {
			return refused
		}
		if count++; p.status != refused.status {
			out = p
		}
	}
	if count > 1 && out.status != refused.status {
		return whole
	}
	return out
}

// rangeOf returns the part for one range. It returns false if the range is malformed.
func rangeOf(spec string, whole part) (p part, valid bool) {
	low, high, dash := strings.Cut(spec, "-")
	first, hasFirst := decimal(low)
	last, hasLast := decimal(high)
	size := whole.length
	switch {
	case !dash || !hasFirst && low != "" || !hasLast && high != "" || !hasFirst && !hasLast:
		return p, false
	case hasFirst && hasLast && last < first:
		return p, false
	case size == 0:
		return whole, true
	case !hasFirst && last == 0 || first >= size:
		return part{status: http.StatusRequestedRangeNotSatisfiable}, true
	case !hasFirst:
		first, last = max(0, size-last), size-1
	case !hasLast || last >= size:
		last = size - 1
	}
	return part{http.StatusPartialContent, first, last - first + 1}, true
}

// contentRange returns the Content-Range of a 206 or 416 for content of a size.
func (p part) contentRange(size int64) string {
	if p.status == http.StatusPartialContent {
		return fmt.Sprintf("bytes %d-%d/%d", p.first, p.first+p.length-1, size)
	}
	return fmt.Sprint("bytes */", size)
}

// decimal parses a string of digits. A number beyond int64 becomes the largest int64.
func decimal(s string) (int64, bool) {
	n, _ := strconv.ParseUint(s, 10, 63)
	return int64(n), s != "" && strings.Trim(s, "0123456789") == ""
}

// mostFresh is the longest time for which a client may use the object of a URL unasked.
const mostFresh = 24 * time.Hour

// freshness returns Age ("" if it is not known) and Cache-Control of the object of a URL. A client
// counts Age from max-age (RFC 9111, 4.2), so max-age is the age and what is left of the freshness.
func freshness(o *asset.Object) (age, control string) {
	old := time.Duration(0)
	if o.Checked != 0 {
		old = max(0, time.Duration(o.At-o.Checked)).Truncate(time.Second)
		age = seconds(old)
	}
	left := min(time.Duration(o.Fresh-o.At), mostFresh)
	if left < time.Second {
		return age, "no-cache"
	}
	return age, "public, max-age=" + seconds(old+left)
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// cacheStatus returns the Cache-Status (RFC 9211) of an object. The ttl of the object of a URL is
// negative if it is stale.
func cacheStatus(o *asset.Object) string {
	ttl := ""
	if !o.Immutable && o.From != asset.FromPack && o.Fresh != 0 {
		ttl = "; ttl=" + seconds(time.Duration(o.Fresh-o.At))
	}
	switch {
	case o.Filled:
		return "fwd=uri-miss; stored"
	case o.Asked == http.StatusOK:
		return "fwd=stale; fwd-status=200; stored" + ttl
	case o.Asked != 0:
		return "fwd=stale; fwd-status=" + strconv.Itoa(o.Asked) + ttl
	case o.Silent:
		return "hit" + ttl + "; detail=silent"
	}
	return "hit" + ttl + "; detail=" + o.From
}
