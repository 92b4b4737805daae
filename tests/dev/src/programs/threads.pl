# Threads of Perl, with a shared sum and a queue.
use strict; use warnings; use threads; use threads::shared; use Thread::Queue;
my ($sum, $n) = (0, $ARGV[0]); share($sum);
my $queue = Thread::Queue->new(1 .. 500); $queue->end;
my @threads = map { threads->create(sub { while (defined(my $x = $queue->dequeue)) { lock($sum); $sum += $x * $x } }) } 1 .. $n;
$_->join for @threads;
print "$sum\n";
