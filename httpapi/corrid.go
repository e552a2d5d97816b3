package httpapi

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"
)

// corrHeader is X-Corr-ID as net/http spells it.
const corrHeader = "X-Corr-Id"

// newCorrID is a ULID. It tells calls apart and is no secret.
func newCorrID(now time.Time) string {
	id := ulid.ULID{}
	_ = id.SetTime(ulid.Timestamp(now)) // fails after the year 10889 only
	binary.BigEndian.PutUint64(id[6:], rand.Uint64())
	binary.BigEndian.PutUint16(id[14:], uint16(rand.Uint32()))
	return id.String()
}

// isULID tells 26 digits of Crockford's base 32, no larger than 128 bits, upper case.
func isULID(s string) bool {
	if len(s) != ulid.EncodedSize || s[0] > '7' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
		case c >= 'A' && c <= 'Z' && c != 'I' && c != 'L' && c != 'O' && c != 'U':
		default:
			return false
		}
	}
	return true
}

// isUUID tells 8-4-4-4-12 hexadecimal digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}
