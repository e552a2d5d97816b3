package obs

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// stampFormat is RFC 3339 in UTC to the millisecond.
const stampFormat = "2006-01-02T15:04:05.000Z"

// appendJSONLine is l as one JSON object.
func appendJSONLine(b []byte, l line) []byte {
	b = append(b, `{"ts":"`...)
	b = l.at.UTC().AppendFormat(b, stampFormat)
	b = append(b, `","level":"`...)
	b = append(b, l.level.String()...)
	b = append(b, `","service":`...)
	b = appendJSONString(b, l.service)
	if l.part != "" {
		b = append(b, `,"part":`...)
		b = appendJSONString(b, l.part)
	}
	b = append(b, `,"event":`...)
	b = appendJSONString(b, l.event)
	for _, f := range l.fields {
		b = append(b, ',')
		b = append(appendJSONString(b, f.key), ':')
		if f.bare {
			b = append(b, f.text...)
		} else {
			b = appendJSONString(b, f.text)
		}
	}
	return append(b, '}')
}

// appendTextLine is l for people, still one line.
func appendTextLine(b []byte, l line) []byte {
	b = l.at.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, ' ')
	b = append(b, strings.ToUpper(l.level.String())...)
	if l.service != "" {
		b = append(appendPlain(append(b, ' '), l.service), ':')
	}
	b = appendPlain(append(b, ' '), l.event)
	if l.part != "" {
		l.fields = append([]field{{key: "part", text: l.part}}, l.fields...)
	}
	for _, f := range l.fields {
		b = appendPlain(append(b, ' '), f.key)
		b = append(b, '=')
		if f.bare || plain(f.text) {
			b = append(b, f.text...)
		} else {
			b = strconv.AppendQuote(b, f.text)
		}
	}
	return b
}

// appendPlain writes s, quoted if it holds what is not to be seen, or moves a terminal's cursor.
func appendPlain(b []byte, s string) []byte {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// plain says whether s can stand after key= without quotes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// appendJSONString quotes s. Bytes that are not UTF-8 become U+FFFD, and whatever is not to be seen is escaped, such as line separators,
// the controls of terminals and marks that turn the direction of the text: a line stays one line for every reader.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			b = append(b, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		default:
			b = appendEscaped(b, r)
		}
		i += size
	}
	return append(b, '"')
}

// appendEscaped writes r as JSON escapes it: in two halves if it is beyond 16 bits.
func appendEscaped(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return appendEscaped(appendEscaped(b, high), low)
	}
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
