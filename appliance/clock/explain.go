package clock

import (
	"fmt"
	"time"

	"ronbox/appliance/unit"
)

// Explain describes the state for people: by how much the clocks differ, since when and which of
// them is probably wrong, and then what will happen and what to do. next is empty in the state OK.
func (s *Status) Explain() (seen, next string) {
	switch s.State {
	case OK:
		return "the wall clock and the node's clock agree", ""
	case Ahead:
		seen = fmt.Sprintf("the wall clock is %s ahead of the node's clock", unit.Short(s.Offset()))
	case Behind:
		seen = fmt.Sprintf("the wall clock is %s behind the node's clock", unit.Short(-s.Offset()))
	}
	seen += fmt.Sprintf(" since %s (%s): ", s.Since.UTC().Format(time.RFC3339), unit.Short(s.Reading.Sub(s.Since)))
	wrong, next := s.judge()
	return seen + wrong, next
}

// judge returns which of two clocks that differ is probably wrong, and what will happen.
func (s *Status) judge() (wrong, next string) {
	const goesOn = "payments, holds and keys go by the node's clock meanwhile, and nothing is refused"
	switch {
	case s.BeforeBuild:
		wrong = "the wall clock is wrong, because it is before the commit time of this binary, "
		return wrong + s.Built.UTC().Format(time.RFC3339), "set the clock of the machine; " + goesOn
	case s.State == Ahead:
		next = fmt.Sprintf("if it is right, wait: the node's clock goes to it in %s, or at once with "+
			"`ronbox clock accept`; if it is wrong, set it before then", unit.Short(s.SettlesAt.Sub(s.Reading)))
		if s.Synchronised {
			return "the node's clock is probably behind, because the kernel says that the wall clock is " +
				"synchronised", next
		}
		return "the wall clock may be wrong, because the kernel does not say that it is synchronised", next
	case s.SettlesAt.IsZero():
		next = "the node's clock goes on at full speed, so that the times which it stores stay ahead; " + goesOn
	default:
		next = fmt.Sprintf("the node's clock waits for it at half speed: they agree in %s if nobody sets the wall "+
			"clock; %s", unit.Short(2*s.SettlesAt.Sub(s.Reading)), goesOn)
	}
	if s.Synchronised {
		return "the node's clock is probably ahead, because the kernel says that the wall clock is synchronised: " +
			"newer times in the file are from a clock that was wrong", next
	}
	return "the wall clock is probably wrong, because the kernel does not say that it is synchronised",
		"set it, for instance with a time daemon (timedatectl set-ntp true, or chrony); " + next
}
