// RUN: %exla-opt %s --passes=matrix-chain-order --size-threshold=64KB -o %t 2>&1 | filecheck %s
// RUN: filecheck %s --check-prefix=TEXT < %t

// A bfloat16 product is rounded to 8 bits: in another order other numbers would be.

// CHECK: remark: 400xbf16 (800B) not multiplied in another order: every product of bf16 is rounded
// CHECK-SAME: 1,080,000 operations would become 5,600, intermediate tensors of at most 240KB would become at most 16B
// TEXT: stablehlo.dot_general {{.*}} -> tensor<400x300xbf16>
// TEXT-NEXT: stablehlo.dot_general {{.*}} -> tensor<400xbf16>

func.func @main(%a: tensor<400x8xbf16>, %b: tensor<300x8xbf16>, %v: tensor<300xbf16>) -> tensor<400xbf16> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<400x8xbf16>, tensor<300x8xbf16>) -> tensor<400x300xbf16>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<400x300xbf16>, tensor<300xbf16>) -> tensor<400xbf16>
  return %1 : tensor<400xbf16>
}
