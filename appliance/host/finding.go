package host

import "fmt"

// Level is how a finding bears on the node.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // the node works, but worse than it could, or it cannot be told
	Bad  Level = "bad"  // the node will not start, or cannot keep its promises
)

// Finding is one thing that was looked at.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"` // what to do; "" when all is well
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Level: OK, Seen: fmt.Sprintf(format, args...)}
}

func warn(check, advice, format string, args ...any) Finding {
	return Finding{Check: check, Level: Warn, Seen: fmt.Sprintf(format, args...), Advice: advice}
}

func bad(check, advice, format string, args ...any) Finding {
	return Finding{Check: check, Level: Bad, Seen: fmt.Sprintf(format, args...), Advice: advice}
}

// unknown is a check that could not be made.
func unknown(check string, err error) Finding {
	return warn(check, "look at it by hand, or run doctor as the user of the node", "cannot be told: %v", err)
}
