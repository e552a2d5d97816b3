package record

import (
	"fmt"
	"strings"
)

// Flags are what is forbidden to an account, as a set. The bits are stored.
type Flags uint8

// The flags of an account.
const (
	Frozen   Flags = 1 << iota // neither gives nor takes
	NoDebit                    // does not give
	NoCredit                   // does not take
	Closed                     // neither gives nor takes, for good

	allFlags = Frozen | NoDebit | NoCredit | Closed
)

var flagNames = [...]string{"frozen", "no_debit", "no_credit", "closed"}

// Has says whether any of the flags in g is set.
func (f Flags) Has(g Flags) bool { return f&g != 0 }

// Names are the words for the flags that are set, in the order of their bits.
func (f Flags) Names() []string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String is Names with commas between.
func (f Flags) String() string { return strings.Join(f.Names(), ",") }

// ParseFlags takes words as Names gives them, in any order.
func ParseFlags(names ...string) (Flags, error) {
	var f Flags
	for _, name := range names {
		bit, err := parseFlag(name)
		if err != nil {
			return 0, err
		}
		f |= bit
	}
	return f, nil
}

func parseFlag(s string) (Flags, error) {
	for i, name := range flagNames {
		if name == s {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("record: %q is not a flag: must be one of %s", s, strings.Join(flagNames[:], ", "))
}
