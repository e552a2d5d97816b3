package record

import "time"

// badTime says why s is not RFC 3339 in UTC with a Z, or "". time.Parse alone would take one-digit hours and commas.
func badTime(s string) string {
	const shape = "0000-00-00T00:00:00"
	const reason = "must be an RFC 3339 time in UTC, ending in Z"
	if len(s) < len(shape)+1 || len(s) > len(shape)+11 || s[len(s)-1] != 'Z' {
		return reason
	}
	for i, c := range []byte(shape) {
		if digit := s[i] >= '0' && s[i] <= '9'; digit != (c == '0') || !digit && s[i] != c {
			return reason
		}
	}
	if fraction := s[len(shape) : len(s)-1]; fraction != "" {
		if fraction[0] != '.' || len(fraction) == 1 {
			return reason
		}
		for _, c := range []byte(fraction[1:]) {
			if c < '0' || c > '9' {
				return reason
			}
		}
	}
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return "no such day or time"
	}
	return ""
}

// FormatTime gives t as this package writes times: UTC, milliseconds, so that text order is time order.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// ParseTime reads a time of any record: RFC 3339 in UTC, ending in Z.
func ParseTime(s string) (time.Time, error) {
	if reason := badTime(s); reason != "" {
		return time.Time{}, &FieldError{Reason: reason}
	}
	return time.Parse(time.RFC3339, s)
}
