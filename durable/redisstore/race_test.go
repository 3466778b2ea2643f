//go:build race

package redisstore_test

func init() { thorough = true }
