//go:build clockfile

package clocks

import (
	"os"
	"strings"
	"time"

	"ronbox/cmd/ronbox/server/member"
)

// In a build with the tag clockfile, which only tests use, a file may turn the wall clock: the one
// that the environment variable _RONBOX_CLOCK names, with an offset such as -1h.
func init() {
	file := os.Getenv("_RONBOX_CLOCK")
	if file == "" {
		return
	}
	readClock = func() (wall time.Time, up time.Duration) {
		text, _ := os.ReadFile(file) // no file: no offset
		by, _ := time.ParseDuration(strings.TrimSpace(string(text)))
		return time.Now().Add(by), member.SinceMachineStart()
	}
}
