package tokens

import (
	"os"

	"ronbox/engines"
)

// Self returns this process as an actor with the name of one of its parts.
func Self(principal string) engines.Actor {
	uid := uint32(os.Getuid())
	return engines.Actor{Principal: principal, UID: &uid, Admin: true}
}
