package record

import (
	"errors"
	"math"
	"time"
)

// stampLayout is RFC 3339 in UTC with three digits of a second's fraction.
const stampLayout = "2006-01-02T15:04:05.000Z"

var errStamp = errors.New("not a time: must be RFC 3339 in UTC with three digits of a fraction, such as 2026-01-02T03:04:05.678Z")

// appendStamp shows ns since 1970 as stampLayout, truncated to ms. It is not negative.
func appendStamp(dst []byte, ns int64) []byte {
	sec := ns / int64(time.Second)
	ms := int(ns / int64(time.Millisecond) % 1000)
	year, month, day := time.Unix(sec, 0).UTC().Date()
	rest := int(sec % 86400)
	dst = append(digits(dst, year, 4), '-')
	dst = append(digits(dst, int(month), 2), '-')
	dst = append(digits(dst, day, 2), 'T')
	dst = append(digits(dst, rest/3600, 2), ':')
	dst = append(digits(dst, rest/60%60, 2), ':')
	dst = append(digits(dst, rest%60, 2), '.')
	return append(digits(dst, ms, 3), 'Z')
}

// digits appends n as that many decimal digits.
func digits(dst []byte, n, width int) []byte {
	var text [4]byte
	for i := width - 1; i >= 0; i-- {
		text[i] = '0' + byte(n%10)
		n /= 10
	}
	return append(dst, text[:width]...)
}

// parseStamp takes what appendStamp prints.
func parseStamp(s string) (ns int64, err error) {
	at, err := time.Parse(stampLayout, s)
	if err != nil || len(s) != len(stampLayout) || at.Unix() < 0 || at.After(time.Unix(0, math.MaxInt64)) {
		return 0, errStamp
	}
	return at.UnixNano(), nil
}
