package auth

import (
	"errors"
	"fmt"
	"time"
)

// ErrUnauthenticated says that there is no token, or none that stands: answer 401. What Check returns for it is an *InvalidError.
var ErrUnauthenticated = errors.New("auth: not authenticated")

// The stages at which a request fails, as auth_failures_total counts them.
const (
	stageToken     = "token"     // not a token
	stageSignature = "signature" // not of a key of this node
	stageRevoked   = "revoked"
	stageTime      = "time"
	stageCaveat    = "caveat" // stands, and does not allow this
	stageIP        = "ip"     // not even looked at
	stageRate      = "rate"   // too often, by its own caveat
)

// InvalidError says for the log why a token does not stand. Its text is that of ErrUnauthenticated.
type InvalidError struct {
	Stage            string // "token", "signature", "revoked" or "time"
	Reason           string
	TID, Kid, Tenant string // "" unless the MAC was right
	Scope            string // what was asked for
	Fingerprint      string // "" without a token
}

func (e *InvalidError) Error() string { return ErrUnauthenticated.Error() }

// Is makes the error ErrUnauthenticated.
func (e *InvalidError) Is(target error) bool { return target == ErrUnauthenticated }

// DeniedError says that the token stands but does not allow this: answer 403. The fields are for the log.
type DeniedError struct {
	TID, Kid, Tenant string
	Scope            string // what was asked for
	Reasons          []string
	Fingerprint      string
}

func (e *DeniedError) Error() string { return "auth: not allowed" }

// LimitedError says that the request comes too soon: answer 429. Nothing was told of its token.
type LimitedError struct {
	RetryAfter time.Duration
	Stage      string // "ip" after too many failures from one address, "rate" by the token's own caveat
	TID        string // "" unless Stage is "rate"
}

func (e *LimitedError) Error() string { return "auth: too many requests" }

// ErrSpec says that a token cannot be minted or narrowed as asked.
var ErrSpec = errors.New("auth: cannot make this token")

func specErr(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrSpec, fmt.Errorf(format, args...))
}
