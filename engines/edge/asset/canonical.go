package asset

import (
	"strings"
)

// Bounds of a path. A code, as %20, counts as one byte.
const (
	maxPath    = 2048 // bytes
	maxSegment = 255
)

// Sets of characters of RFC 3986 beside the letters and digits.
const (
	unreserved = "-._~"
	subDelims  = "!$&'()*+,;="
	inPath     = unreserved + subDelims + ":@/"
)

// inQuery are the characters that stay as they are in a query. Some of them should be encoded, but
// hosts depend on the spelling that they gave out.
const inQuery = inPath + "?\"<>[\\]^`{|}"

// canonical returns a text in the spelling that all equivalent ones share: codes of unreserved
// characters are decoded, other codes have upper-case digits, and bytes that are neither letters,
// digits nor in stay are encoded. A % that begins no code stays.
func canonical(text, stay string) string {
	at := 0
	for at < len(text) && isPlain(text[at], stay) {
		at++
	}
	if at == len(text) {
		return text
	}
	out := append(make([]byte, 0, len(text)+16), text[:at]...)
	for ; at < len(text); at++ {
		c := text[at]
		code, ok := codeAt(text, at)
		switch {
		case c == '%' && ok && isPlain(code, unreserved) && !endsInCode(out):
			out = append(out, code)
			at += 2
		case c == '%' && ok:
			out = appendCode(out, code)
			at += 2
		case c == '%' || isPlain(c, stay):
			out = append(out, c)
		default:
			out = appendCode(out, c)
		}
	}
	return string(out)
}

// endsInCode reports whether a character that is decoded after text would complete a code, as in
// "%%341".
func endsInCode(text []byte) bool {
	n := len(text)
	return n > 0 && text[n-1] == '%' || n > 1 && text[n-2] == '%'
}

// canonicalPath returns the canonical spelling of an escaped path, or describes its fault.
func canonicalPath(path string) (out, why string) {
	for i := range len(path) {
		if _, ok := codeAt(path, i); path[i] == '%' && !ok {
			return "", "has a % that two hex digits do not follow: encode it as %25"
		}
	}
	if strings.Contains(path, `\`) {
		return "", wantPrintable
	}
	out = canonical(path, inPath)
	if len(out)-2*strings.Count(out, "%") > maxPath {
		return "", "is longer than 2048 bytes"
	}
	dir := strings.TrimSuffix(out, "/") // "<host>/" and "<host>/dir/" are valid
	for segment := range strings.SplitSeq(dir, "/") {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return "", "has an empty or dotted segment"
		case len(segment)-2*strings.Count(segment, "%") > maxSegment:
			return "", "has a segment longer than 255 bytes"
		case hasControl(segment):
			return "", wantPrintable
		}
	}
	return out, ""
}

const wantPrintable = "has a control character or a backslash"

// hasControl reports whether a canonical segment has the code of a control character, also one of
// the second set of Unicode, or of a backslash, which some clients take for a slash.
func hasControl(segment string) bool {
	for i := range len(segment) {
		code, ok := codeAt(segment, i)
		if !ok {
			continue
		}
		next, more := codeAt(segment, i+3)
		if code < 0x20 || code == 0x7f || code == '\\' || code == 0xc2 && more && next < 0xa0 {
			return true
		}
	}
	return false
}

// canonicalHost returns a host in lower case and without the port that https has anyway.
func canonicalHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }

// isPlain reports whether a byte is a letter, a digit or in stay.
func isPlain(c byte, stay string) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(stay, c) >= 0
}

// codeAt returns the byte whose code, as %20, is at text[i].
func codeAt(text string, i int) (code byte, ok bool) {
	if i+2 >= len(text) || text[i] != '%' {
		return 0, false
	}
	high, ok := hexDigit(text[i+1])
	low, also := hexDigit(text[i+2])
	return high<<4 | low, ok && also
}

func hexDigit(c byte) (v byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func appendCode(dst []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, '%', digits[c>>4], digits[c&15])
}
