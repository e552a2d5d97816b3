package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

const (
	timeoutHeader  = "Request-Timeout" // seconds, fractions allowed
	deadlineHeader = "Deadline"        // RFC 3339
	maxTimeout     = 86_400
)

// HeaderError says which request header is malformed. It never repeats the value.
type HeaderError struct{ Header, Reason string }

func (e *HeaderError) Error() string { return "header " + e.Header + ": " + e.Reason }

// limitTime gives the call the least of the route's budget and what the caller asks for. A stream lasts as long as
// both sides want.
func limitTime(_ *Server, b *bound, next handler) handler {
	return func(c *call) error {
		if b.route.Class != ClassStream {
			c.deadline = c.started.Add(c.budget())
		}
		if err := c.shorten(); err != nil {
			return err
		}
		defer c.release()
		return next(c)
	}
}

// budget is how long the route's work may take.
func (c *call) budget() time.Duration {
	if c.route.Reloads && c.live.walletTimeout > 0 {
		return c.live.walletTimeout
	}
	return c.route.Deadline
}

// shorten applies the caller's own limits.
func (c *call) shorten() error {
	if v, ok, err := single(c.r, timeoutHeader); err != nil {
		return err
	} else if ok {
		d, err := parseTimeout(v)
		if err != nil {
			return err
		}
		c.sooner(c.started.Add(d))
	}
	if v, ok, err := single(c.r, deadlineHeader); err != nil {
		return err
	} else if ok {
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return &HeaderError{deadlineHeader, "must be an RFC 3339 time"}
		}
		c.sooner(at)
	}
	return nil
}

func parseTimeout(v string) (time.Duration, error) {
	sec, err := strconv.ParseFloat(v, 64)
	if err != nil || !decimalText(v) || !(sec > 0 && sec <= maxTimeout) {
		return 0, &HeaderError{timeoutHeader, "must be seconds above 0, at most " + strconv.Itoa(maxTimeout)}
	}
	return time.Duration(sec * float64(time.Second)), nil
}

// decimalText tells plain decimals from what ParseFloat takes beside them: signs, exponents, hex, Inf.
func decimalText(v string) bool {
	for i := range len(v) {
		if (v[i] < '0' || v[i] > '9') && v[i] != '.' {
			return false
		}
	}
	return v != "" && v[0] != '.'
}

func (c *call) sooner(at time.Time) {
	if !c.deadline.IsZero() && at.Before(c.deadline) {
		c.deadline = at
	}
}

// single gives the one value of a header; a header given twice says nothing.
func single(r *http.Request, name string) (string, bool, error) {
	switch v := r.Header[name]; len(v) {
	case 0:
		return "", false, nil
	case 1:
		return v[0], true, nil
	default:
		return "", false, &HeaderError{name, "given more than once"}
	}
}
