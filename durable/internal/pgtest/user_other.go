//go:build !unix

package pgtest

import "syscall"

func handOver(string) (*syscall.SysProcAttr, error) { return nil, nil }
