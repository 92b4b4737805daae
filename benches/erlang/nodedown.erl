%% Four nodes of this host, of which the last is to be killed: the contender of `gossamer-bench losses`. Prints the
%% process of that node, and then, for each of the others, the time at which it was told `nodedown`.
-module(nodedown).
-export([main/0, watch/2]).

main() ->
    Folder = filename:dirname(code:which(?MODULE)),
    Words = ["-pa", Folder, "-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-kernel", "logger_level", "critical"],
    Start = fun(Name) ->
        {ok, _, Node} = peer:start(#{name => Name, connection => standard_io, args => Words}),
        Node
    end,
    [One, Two, Last] = lists:map(Start, [peer:random_name() || _ <- [1, 2, 3]]),
    Watchers = [spawn(Node, ?MODULE, watch, [self(), Last]) || Node <- [node(), One, Two]],
    [receive {Watcher, watches} -> ok end || Watcher <- Watchers],
    io:format("~s~n", [erpc:call(Last, os, getpid, [])]),
    [receive {Watcher, At} -> io:format("~b~n", [At]) end || Watcher <- Watchers],
    init:stop().

watch(Teller, Node) ->
    true = net_kernel:connect_node(Node),
    true = erlang:monitor_node(Node, true),
    Teller ! {self(), watches},
    receive {nodedown, Node} -> Teller ! {self(), os:system_time(nanosecond)} end.
