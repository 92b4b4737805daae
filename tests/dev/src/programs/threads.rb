# Threads of Ruby, with a queue and a mutex.
queue, sum, mutex = Queue.new, 0, Mutex.new
500.times { |x| queue << x }
queue.close
threads = ARGV[0].to_i.times.map do
  Thread.new { while (x = queue.pop); mutex.synchronize { sum += x * x }; end }
end
threads.each(&:join)
puts sum
