// trust.hpp: the C API of trust.h for C++17 and later: objects release their resources, functions are lambdas, errors
// are exceptions.
//
// A lambda travels as its bytes, so it captures plain values only (and not by reference); so does its result. Delegated
// lambdas and callbacks must not throw: that ends the program. docs/c-api.md has the rules of threads.
#ifndef TRUST_HPP
#define TRUST_HPP

#include <trust.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace trust {

/// A failed call: status and text.
class Error : public std::runtime_error {
public:
    explicit Error(trust_status status) : std::runtime_error(std::string(trust_status_name(status)) + ": " + trust_error_message()), status_(status) {}
    trust_status status() const noexcept { return status_; }

private:
    trust_status status_;
};

/// Throws if a call has failed.
inline void check(trust_status status) {
    if (status != TRUST_OK) {
        throw Error(status);
    }
}

/// Attaches the calling thread as long as this lives. Destroy it on the same thread.
class Attached {
public:
    /// Whether the thread serves its trustee only while it waits in calls, or also from a loop of its own.
    enum Kind { waiting, polling };

    explicit Attached(Kind kind = waiting) { check(trust_attach(kind == polling ? &descriptor_ : nullptr)); }
    ~Attached() { trust_detach(); }
    Attached(const Attached &) = delete;
    Attached &operator=(const Attached &) = delete;

    /// Descriptor on which the loop waits before it calls poll(); -1 if the thread is not polling.
    int descriptor() const noexcept { return descriptor_; }
    /// Does pending work; true if there was any.
    bool poll() const {
        bool busy = false;
        check(trust_poll(&busy));
        return busy;
    }
    trust_trustee trustee() const {
        trust_trustee trustee = 0;
        check(trust_local_trustee(&trustee));
        return trustee;
    }

private:
    int descriptor_ = -1;
};

/// A pool of workers, which ends with this object.
class Pool {
public:
    explicit Pool(unsigned workers = 0) {
        trust_pool_options options = {};
        options.size = sizeof options;
        options.workers = workers;
        check(trust_pool_start(&options, &pool_));
    }
    explicit Pool(const trust_pool_options &options) { check(trust_pool_start(&options, &pool_)); }
    ~Pool() { trust_pool_stop(pool_); }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    std::size_t workers() const noexcept { return trust_pool_workers(pool_); }
    trust_trustee trustee(std::size_t worker) const {
        trust_trustee trustee = 0;
        check(trust_pool_trustee(pool_, worker, &trustee));
        return trustee;
    }

private:
    trust_pool *pool_ = nullptr;
};

/// The argument of a callback: a value, or the reason why there is none.
template <class R> class Outcome {
public:
    Outcome(trust_status status, const void *result) : status_(status) {
        if (status == TRUST_OK) {
            std::memcpy(&value_, result, sizeof(R));
        }
    }
    explicit operator bool() const noexcept { return status_ == TRUST_OK; }
    trust_status status() const noexcept { return status_; }
    /// Only if there is a value.
    const R &operator*() const noexcept { return value_; }

private:
    trust_status status_;
    R value_{};
};

template <> class Outcome<void> {
public:
    Outcome(trust_status status, const void *) : status_(status) {}
    explicit operator bool() const noexcept { return status_ == TRUST_OK; }
    trust_status status() const noexcept { return status_; }

private:
    trust_status status_;
};

namespace detail {

template <class T> constexpr bool travels = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && alignof(T) <= 8;

/// A lambda F on a T as a delegated function.
template <class T, class F> struct Call {
    using R = std::invoke_result_t<F &, T &>;
    static_assert(travels<F>, "a lambda that is delegated captures plain values: no strings, no pointers that own, no trusts (use get())");
    static_assert(std::is_void_v<R> || travels<std::conditional_t<std::is_void_v<R>, int, R>>, "a result is a plain value");

    static void run(void *property, const void *arguments, std::size_t, trust_result *result) noexcept {
        F f = *static_cast<const F *>(arguments);
        T &value = *static_cast<T *>(property);
        if constexpr (std::is_void_v<R>) {
            f(value);
        } else {
            R made = f(value);
            trust_result_put(result, &made, sizeof made);
        }
    }
};

/// A callback H as a context: in its bytes if it is small and plain, else allocated.
template <class R, class H> struct Then {
    static constexpr bool is_inline = std::is_trivially_copyable_v<H> && sizeof(H) <= sizeof(void *);

    static void *make(H then) {
        if constexpr (is_inline) {
            void *context = nullptr;
            std::memcpy(&context, &then, sizeof then);
            return context;
        } else {
            return new H(std::move(then));
        }
    }
    static void discard(void *context) noexcept {
        if constexpr (!is_inline) {
            delete static_cast<H *>(context);
        }
    }
    static void run(void *context, trust_status status, const void *result, std::size_t) noexcept {
        if constexpr (is_inline) {
            (*reinterpret_cast<H *>(&context))(Outcome<R>(status, result));
        } else {
            std::unique_ptr<H> then(static_cast<H *>(context));
            (*then)(Outcome<R>(status, result));
        }
    }
};

using Wait = trust_status (*)(trust_t, trust_function, const void *, std::size_t, void *, std::size_t *);
using Post = trust_status (*)(trust_t, trust_function, const void *, std::size_t, trust_then, void *);

template <class T, class F> auto wait(Wait call, trust_t handle, const F &f) {
    using C = Call<T, F>;
    if constexpr (std::is_void_v<typename C::R>) {
        check(call(handle, C::run, &f, sizeof f, nullptr, nullptr));
    } else {
        typename C::R value{};
        std::size_t room = sizeof value;
        check(call(handle, C::run, &f, sizeof f, &value, &room));
        return value;
    }
}

template <class T, class F, class H> void post(Post call, trust_t handle, const F &f, H then) {
    using C = Call<T, F>;
    using D = Then<typename C::R, H>;
    void *context = D::make(std::move(then));
    trust_status status = call(handle, C::run, &f, sizeof f, D::run, context);
    if (status != TRUST_OK) {
        D::discard(context);
        throw Error(status);
    }
}

} // namespace detail

/// A counted handle to a T that is entrusted to a trustee. With `latched`, lambdas are launched on it in fibers, and
/// may wait.
template <class T, bool latched = false> class Trust {
public:
    Trust() noexcept = default;
    /// Takes over a handle of a T.
    explicit Trust(trust_t handle) noexcept : handle_(handle) {}
    Trust(const Trust &other) noexcept : handle_(trust_clone(other.handle_)) {}
    Trust(Trust &&other) noexcept : handle_(std::exchange(other.handle_, trust_t{})) {}
    Trust &operator=(Trust other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Trust() { trust_drop(handle_); }

    /// The handle, which this object keeps: for arguments, or trust_clone.
    trust_t get() const noexcept { return handle_; }

    /// Applies (launches, where latched) `f` to the T and waits for its result.
    template <class F> auto apply(const F &f) const { return detail::wait<T>(latched ? trust_launch : trust_apply, handle_, f); }
    /// As apply, without waiting; `then` is called with an Outcome of the result, on this thread.
    template <class F, class H> void apply_then(const F &f, H then) const {
        detail::post<T>(latched ? trust_launch_then : trust_apply_then, handle_, f, std::move(then));
    }

private:
    trust_t handle_ = {};
};

/// Makes a T here and entrusts it; it is deleted on its trustee's thread.
template <class T, bool latched = false, class... A> Trust<T, latched> entrust(trust_trustee trustee, A &&...arguments) {
    auto made = std::make_unique<T>(std::forward<A>(arguments)...);
    trust_t handle = {};
    auto call = latched ? trust_entrust_latched : trust_entrust;
    check(call(trustee, made.get(), [](void *property) noexcept { delete static_cast<T *>(property); }, &handle));
    made.release();
    return Trust<T, latched>(handle);
}

} // namespace trust

#endif
