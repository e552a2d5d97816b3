package record

import (
	"strconv"
	"unicode/utf8"

	"ronbox/appliance/b3"
)

// writer builds one canonical document. Member names are given in ascending order by the caller; out of order is a bug and panics.
type writer struct {
	out  []byte
	last []string // the latest member name of each open object
}

func (w *writer) begin() {
	w.out = append(w.out, '{')
	w.last = append(w.last, "")
}

func (w *writer) end() {
	w.last = w.last[:len(w.last)-1]
	w.out = append(w.out, '}')
}

func (w *writer) name(n string) {
	top := len(w.last) - 1
	if compareUTF16(w.last[top], n) >= 0 {
		panic("record: member " + n + " written after " + w.last[top])
	}
	if w.last[top] != "" {
		w.out = append(w.out, ',')
	}
	w.last[top] = n
	w.out = append(appendText(w.out, n), ':')
}

func (w *writer) text(name, v string) {
	w.name(name)
	w.out = appendText(w.out, v)
}

// textOpt leaves the member out when v is empty.
func (w *writer) textOpt(name, v string) {
	if v != "" {
		w.text(name, v)
	}
}

func (w *writer) uint(name string, v uint64) {
	w.name(name)
	w.out = strconv.AppendUint(w.out, v, 10)
}

// uintOpt leaves the member out when v is zero.
func (w *writer) uintOpt(name string, v uint64) {
	if v != 0 {
		w.uint(name, v)
	}
}

func (w *writer) digest(name string, v b3.Digest) { w.text(name, v.String()) }

// digestOpt leaves the member out when v is zero.
func (w *writer) digestOpt(name string, v b3.Digest) {
	if !v.IsZero() {
		w.digest(name, v)
	}
}

// raw writes a member whose value is already canonical.
func (w *writer) raw(name string, v []byte) {
	w.name(name)
	w.out = append(w.out, v...)
}

// array writes a member of n elements.
func (w *writer) array(name string, n int, element func(i int)) {
	w.name(name)
	w.out = append(w.out, '[')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		element(i)
	}
	w.out = append(w.out, ']')
}

func (w *writer) texts(name string, v []string) {
	w.array(name, len(v), func(i int) { w.out = appendText(w.out, v[i]) })
}

// appendText quotes s as RFC 8785 asks: the short escapes, \u00xx for other control characters, everything else as it is.
func appendText(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out = append(out, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\t':
			out = append(out, `\t`...)
		case '\n':
			out = append(out, `\n`...)
		case '\f':
			out = append(out, `\f`...)
		case '\r':
			out = append(out, `\r`...)
		default:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(out, s[from:]...), '"')
}

// compareUTF16 orders member names by their UTF-16 code units, as RFC 8785 asks. That is byte order, but for characters beyond U+FFFF, which
// come before U+E000…U+FFFF because they begin with a surrogate.
func compareUTF16(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) {
		return len(a) - len(b)
	}
	if a[i] < 0xEE || b[i] < 0xEE { // one side is below U+E000, where both orders agree
		return int(a[i]) - int(b[i])
	}
	ra, _ := utf8.DecodeRuneInString(a[i:])
	rb, _ := utf8.DecodeRuneInString(b[i:])
	if beyond := 0x10000; (int(ra) >= beyond) != (int(rb) >= beyond) {
		return int(rb) - int(ra)
	}
	return int(ra) - int(rb)
}
