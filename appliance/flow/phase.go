package flow

import "fmt"

// Phase is where the process stands between boot and exit; the value of the lifecycle cell.
type Phase int

// The phases, in the order of a life. Degraded alternates with Running; Poisoned is reached from anywhere and ends the process.
const (
	Booting Phase = iota
	Recovering
	Running
	Degraded
	Draining
	Aborting
	Stopping
	Stopped
	Poisoned
)

// String returns the phase in lower case, as metrics and answers print it.
func (p Phase) String() string {
	switch p {
	case Booting:
		return "booting"
	case Recovering:
		return "recovering"
	case Running:
		return "running"
	case Degraded:
		return "degraded"
	case Draining:
		return "draining"
	case Aborting:
		return "aborting"
	case Stopping:
		return "stopping"
	case Stopped:
		return "stopped"
	case Poisoned:
		return "poisoned"
	}
	return fmt.Sprintf("phase(%d)", int(p))
}
