// Package agent serves logs to programs in any language, over gRPC, gRPC-Web, and JSON over HTTP.
//
// A stream of Lead is a session: package session says what that promises. The messages are in agentpb/agent.proto.
// One [Server] serves many logs. What one client does costs another one nothing but the bounds of [Options].
//
// The server does not listen. Let it listen where only the right clients come: on a unix socket in a directory of mode
// 0700, or on TCP with mutual TLS or with Options.Token. The verb agent of the command line does that.
package agent
