package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
)

// Because says in a few words why a service did not answer: the network's error, without the list of tries.
func Because(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var timeout net.Error
	switch {
	case hasExpired(err):
		return "the credentials have expired: log in again or renew the profile; if they are in AWS_ACCESS_KEY_ID, start again with new ones"
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name):
		return name.Err + ": " + name.Name
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was broken off"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// trying warns once that a service does not answer, or answers with faults, while it is retried.
func trying(service, where string, warn func(error)) func(error) {
	var once sync.Once
	return func(err error) {
		once.Do(func() { warn(fmt.Errorf("%s at %s: %s; trying again", service, where, Because(err))) })
	}
}

// host is the host of an endpoint, if it has one.
func host(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		return u.Host
	}
	return endpoint
}
