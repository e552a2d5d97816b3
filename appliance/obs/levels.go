package obs

import (
	"maps"

	"github.com/hashicorp/go-hclog"
)

// levels says what is written of each service. It is never changed, only replaced.
type levels struct {
	all hclog.Level
	by  map[string]hclog.Level
}

// of is the level of service.
func (l *levels) of(service string) hclog.Level {
	if own, ok := l.by[service]; ok {
		return own
	}
	return l.all
}

// least is the lowest level of all: what is below it is written by nobody.
func (l *levels) least() hclog.Level {
	out := l.all
	for _, own := range l.by {
		out = min(out, own)
	}
	return out
}

func (l *levels) clone() levels {
	by := maps.Clone(l.by)
	if by == nil {
		by = map[string]hclog.Level{}
	}
	return levels{all: l.all, by: by}
}
