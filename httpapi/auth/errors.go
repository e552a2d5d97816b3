package auth

import (
	"errors"
	"fmt"
)

// ErrUnauthenticated says that there is no token, or none that stands: answer 401. What Check returns for it is an *InvalidError.
var ErrUnauthenticated = errors.New("auth: not authenticated")

// InvalidError says for the log why a token does not stand. Its text is that of ErrUnauthenticated.
type InvalidError struct {
	Stage  string // "token", "signature", "revoked" or "time"
	Reason string
	TID    string // "" unless the MAC was right
}

func (e *InvalidError) Error() string { return ErrUnauthenticated.Error() }

// Is makes the error ErrUnauthenticated.
func (e *InvalidError) Is(target error) bool { return target == ErrUnauthenticated }

// DeniedError says that the token stands but does not allow this: answer 403. The fields are for the log.
type DeniedError struct {
	TID, Kid, Tenant string
	Scope            string // what was asked for
	Reasons          []string
}

func (e *DeniedError) Error() string { return "auth: not allowed" }

// ErrSpec says that a token cannot be minted or narrowed as asked.
var ErrSpec = errors.New("auth: cannot make this token")

func specErr(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrSpec, fmt.Errorf(format, args...))
}
